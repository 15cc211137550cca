package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

const resumeRun = "run_resume"

// resumeEvents is how long the run is when every cursor is tried.
const resumeEvents = 2000

// world is one deployment under test: where it is read, and how its stream forgets.
type world struct {
	edges    []*proc
	nats     string
	postgres string
	forget   func() // the streams drop everything that has been persisted
}

// Prefix up to k plus Last-Event-ID: k is the whole, byte for byte, for every fifth k of a run of 2,000
// events with hostile payloads among them, while writers go on publishing to it; from the stream,
// from SQLite, from PostgreSQL, and across two edges. Which fifth is random. With
// AGENTSTREAM_PROOFS it is every k; every k in one process is TestResumeAtEveryCursor of edge.
func TestResumeAtEveryCursor(t *testing.T) {
	beside(t)
	t.Run("dev, SQLite", func(t *testing.T) { resume(t, devWorld(t)) })
	t.Run("two edges, PostgreSQL", func(t *testing.T) { resume(t, clusterWorld(t)) })
}

// proofs reports whether what is proven by a sample is to be proven in full: make proofs.
func proofs() bool { return os.Getenv("AGENTSTREAM_PROOFS") != "" }

func resume(t *testing.T, w world) {
	events := schematest.Generate(resumeEvents+1, 11).Events
	publishRun(t, w.nats, events[:resumeEvents]) // without its end: the run goes on
	whole := frames(t, w.edges[0], 0, resumeEvents)
	stop := keepPublishing(t, w.nats)
	defer stop()
	first, step := rand.IntN(5), 5
	if proofs() {
		first, step = 0, 1
	}
	check := func(source string) {
		t.Helper()
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := first + i*step; k < resumeEvents; k += 4 * step {
					rest := frames(t, w.edges[k/(4*step)%len(w.edges)], k, resumeEvents)
					if !bytes.Equal(rest, whole[prefix(whole, k):]) {
						t.Errorf("%s: resume behind %d is not the rest", source, k)
						return
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %d cursors from %d on, each the exact rest, %s", source, resumeEvents/step, first,
			time.Since(began).Round(time.Millisecond))
	}
	check("stream")
	w.forget()
	check("archive")
}

// prefix is the length of the first k frames.
func prefix(whole []byte, k int) int {
	if k == 0 {
		return 0
	}
	mark := []byte("\nid: " + strconv.Itoa(k) + "\n\n")
	return bytes.Index(whole, mark) + len(mark)
}

// frames reads the stream behind a cursor up to the frame with id last, as raw bytes without
// comments and the reconnection hint.
func frames(t testing.TB, p *proc, after, last int) []byte {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		p.url("/v1/agent/runs/"+resumeRun+"/stream?detail=full"), nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.Itoa(after))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("behind %d: status %d", after, resp.StatusCode)
		return nil
	}
	end := []byte("\nid: " + strconv.Itoa(last) + "\n\n")
	var out []byte
	for {
		seen := max(0, len(out)-len(end))
		out = slices.Grow(out, 64<<10)
		n, err := resp.Body.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if at := bytes.Index(out[seen:], end); at >= 0 {
			return framesAlone(out[:seen+at+len(end)])
		}
		if err != nil {
			if err != io.EOF {
				t.Errorf("behind %d: %v", after, err)
			}
			return framesAlone(out)
		}
	}
}

// framesAlone leaves out comments, and the reconnection hint in front. It looks at lines only where there are
// comments: looking at each would be most of what the test costs.
func framesAlone(text []byte) []byte {
	for len(text) > 0 && (text[0] == '\n' || text[0] == ':' || bytes.HasPrefix(text, []byte("retry:"))) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	if !bytes.Contains(text, []byte("\n:")) {
		return text
	}
	var out []byte
	for line := range bytes.Lines(text) {
		if line[0] != ':' {
			out = append(out, line...)
		}
	}
	return out
}

// publishRun stores the events under resumeRun through the SDK.
func publishRun(t testing.TB, url string, events []schema.Event) {
	t.Helper()
	pub, closeAll := publisher(t, url, false)
	defer closeAll()
	for _, e := range events {
		if _, err := pub.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := pub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func publisher(t testing.TB, url string, shared bool) (*producers.Publisher, func()) {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	log, err := pubjs.Open(context.Background(), nc)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := producers.New(producers.Config{Log: log, Shared: shared,
		Key: schema.RunKey{Tenant: "default", Run: resumeRun}})
	if err != nil {
		t.Fatal(err)
	}
	return pub, nc.Close
}

// keepPublishing appends to the run from two writers until the returned function is called.
func keepPublishing(t testing.TB, url string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for w := range 2 {
		pub, closeAll := publisher(t, url, true)
		wg.Go(func() {
			defer closeAll()
			for i := 0; ctx.Err() == nil; i++ {
				e := schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"late %d %d"}`, w, i)}
				if _, err := pub.Append(context.Background(), e); err != nil {
					t.Error(err)
				}
				<-time.After(20 * time.Millisecond)
			}
			if err := pub.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func devWorld(t *testing.T) world {
	nats := testkit.FreeAddr(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--no-demo", "--data", data, "--nats-listen", nats)
	p.start()
	w := world{edges: []*proc{p}, nats: "nats://" + nats}
	w.forget = func() {
		eventually(t, 30*time.Second, "everything is in SQLite", func() bool { return persisted(t, w.nats, data) })
		if _, err := os.Stat(filepath.Join(data, "archive.db")); err != nil {
			t.Fatal(err)
		}
		purge(t, w.nats, data)
	}
	return w
}

func clusterWorld(t *testing.T) world {
	k := testkit.NATS(t)
	dsn := testkit.Postgres(t)
	url := k.Server.ClientURL()
	migrate(t, dsn, url)
	w := world{nats: url}
	for range 2 {
		p := newProc(t, "edge", "--nats", url)
		p.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
		p.start()
		w.edges = append(w.edges, p)
	}
	per := newProc(t, "persist", "--nats", url)
	per.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
	per.start()
	w.forget = func() {
		eventually(t, 30*time.Second, "everything is in PostgreSQL", func() bool { return persisted(t, url, dsn) })
		purge(t, url, dsn)
	}
	return w
}

func migrate(t *testing.T, dsn, url string, args ...string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(path, append([]string{"migrate", "--nats", url, "--partitions", "4"}, args...)...)
	cmd.Env = append(os.Environ(), "AGENTSTREAM_POSTGRES="+dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
}

// ofRun calls fn for the stream that holds resumeRun.
func ofRun(t testing.TB, url string, fn func(jetstream.Stream)) {
	t.Helper()
	var all []jetstream.Stream
	eachStream(t, url, func(s jetstream.Stream) { all = append(all, s) }, func() {
		fn(all[schema.Partition(resumeRun, len(all))])
	})
}

// floor is the stream position up to which everything is stored.
func floor(t testing.TB, s jetstream.Stream, archive string) uint64 {
	t.Helper()
	at, err := offsets(t.Context(), archive)
	if err != nil {
		return 0
	}
	return at[s.CachedInfo().Config.Name]
}

// persisted reports whether what the run is compared by has left the stream for the archive.
func persisted(t testing.TB, url, archive string) (yes bool) {
	ofRun(t, url, func(s jetstream.Stream) {
		m, err := s.GetMsg(t.Context(), floor(t, s, archive))
		if err != nil {
			return
		}
		first, _ := strconv.Atoi(m.Header.Get(schema.HeaderSeq))
		yes = first > resumeEvents
	})
	return yes
}

// purge drops from the stream what is stored, as the window would.
func purge(t testing.TB, url, archive string) {
	t.Helper()
	ofRun(t, url, func(s jetstream.Stream) {
		at := floor(t, s, archive)
		if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(at)); err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		if err != nil || info.State.FirstSeq < at {
			t.Fatalf("stream still begins at %d, err %v", info.State.FirstSeq, err)
		}
		t.Logf("stream begins at position %d now", info.State.FirstSeq)
	})
}
