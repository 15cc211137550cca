package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// cutShape is a deployment whose log can come back shorter than it was.
type cutShape struct {
	bases   []string // of edges
	archive string   // a folder, or a DSN
	logDir  string
	nats    string                   // its address, to look into it
	pause   func(sig syscall.Signal) // of the process that holds the log
	down    func()                   // everything that a power cut ends
	up      func()
	admins  []string // of edges that outlive the cut
}

// cutDev is one process with everything; a power cut ends it.
func cutDev(t *testing.T) *cutShape {
	data, nats := t.TempDir(), testkit.FreeAddr(t)
	p := newProc(t, "dev", "--no-demo", "--data", data, "--partitions", "4", "--nats-listen", nats)
	p.start()
	return &cutShape{
		bases: []string{"http://" + p.addr}, archive: data, logDir: filepath.Join(data, "nats"), nats: "nats://" + nats,
		pause: func(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }, down: p.kill, up: p.start,
	}
}

// cutSplit is two edges and a persister around one NATS server; the power of that one is cut.
func cutSplit(t *testing.T) *cutShape {
	dsn, dir := testkit.Postgres(t), t.TempDir()
	n := startNATS(t, dir)
	migrate(t, dsn, n.url())
	s := &cutShape{archive: dsn, logDir: dir, nats: n.url(), down: func() { n.kill() }}
	per := newRole(t, "persist", n.url(), dsn)
	per.start()
	per.await(t)
	edges := []*role{newRole(t, "edge", n.url(), dsn), newRole(t, "edge", n.url(), dsn)}
	for _, e := range edges {
		e.start()
		e.await(t)
		s.bases, s.admins = append(s.bases, "http://"+e.addr), append(s.admins, e.admin)
	}
	s.pause = func(sig syscall.Signal) { _ = syscall.Kill(n.process(), sig) }
	s.up = func() {
		n.start()
		n.await()
		for _, e := range edges {
			e.await(t)
		}
	}
	return s
}

// image copies a folder as a disk has it at one moment.
func (s *cutShape) image(t *testing.T, dir string) (back func()) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "image")
	s.pause(syscall.SIGSTOP)
	err := os.CopyFS(kept, os.DirFS(dir))
	s.pause(syscall.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
			t.Fatal(err)
		}
	}
}

// cutLoad publishes batches to runs until it is told to stop. A batch that is not answered is not repeated.
type cutLoad struct {
	t     *testing.T
	mu    sync.Mutex
	acked map[string]map[string]ack // run → batch → answer
	by    map[string]bool           // edges that have acknowledged a batch since take
	n     int
}

const cutRuns = 6

// run publishes for a while, to all runs at once, by way of all edges; end returns when what is under way has been
// answered, or cut.
func (l *cutLoad) run(bases []string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range cutRuns {
		clients.Go(func() {
			client := &http.Client{Timeout: 20 * time.Second, Transport: withToken{&http.Transport{}}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				l.batch(ctx, client, bases[rand.IntN(len(bases))], fmt.Sprint("run_", i))
			}
		})
	}
	return func() { cancel(); clients.Wait() }
}

func (l *cutLoad) batch(ctx context.Context, client *http.Client, base, run string) {
	l.mu.Lock()
	l.n++
	name := fmt.Sprint("b", l.n)
	l.mu.Unlock()
	var body bytes.Buffer
	for i := range batchEvents {
		fmt.Fprintf(&body, `{"type":"text.delta","payload":{"text":"%s:%d"}}`+"\n", name, i)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/agent/runs/"+run+"/events", &body)
	if err != nil {
		l.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", name)
	resp, err := client.Do(req)
	select { // what is proven does not need many of them
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var a ack
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusOK {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked[run] == nil {
		l.acked[run] = make(map[string]ack)
	}
	l.acked[run][name] = a
	if l.by == nil {
		l.by = make(map[string]bool)
	}
	l.by[base] = true
}

// taken reports whether each edge has acknowledged a batch since take.
func (l *cutLoad) taken(bases []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(bases, func(base string) bool { return !l.by[base] })
}

// take returns what was acknowledged so far, and forgets it.
func (l *cutLoad) take() map[string]map[string]ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.acked
	l.acked, l.by = make(map[string]map[string]ack), nil
	return all
}

// holds counts the batches that a run has whole at their numbers, and those that it has not.
func holds(t *testing.T, lines []string, acked map[string]ack) (whole, lost int) {
	t.Helper()
	at := make(map[string]schema.Seq)
	for i, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil || e.Seq != schema.Seq(i+1) {
			t.Fatalf("line %d: seq %d, %v", i+1, e.Seq, err)
		}
		text := strings.TrimSuffix(strings.TrimPrefix(string(e.Payload), `{"text":"`), `"}`)
		if before, twice := at[text]; twice {
			t.Fatalf("%s stands at %d and at %d", text, before, e.Seq)
		}
		at[text] = e.Seq
	}
	for name, a := range acked {
		n := 0
		for i := range batchEvents {
			seq, ok := at[fmt.Sprintf("%s:%d", name, i)]
			if ok && seq != a.First+schema.Seq(i) {
				t.Fatalf("%s:%d was acknowledged at %d and stands at %d", name, i, a.First+schema.Seq(i), seq)
			}
			if ok {
				n++
			}
		}
		if n == batchEvents {
			whole++
		} else {
			lost++
		}
	}
	return whole, lost
}

// cutWorld is a shape under load, with what was told.
type cutWorld struct {
	*cutShape
	t      *testing.T
	load   *cutLoad
	before map[string]map[string]ack // acknowledged before the newest cut
	sure   map[string]map[string]ack // acknowledged since the first cut: none of it may be lost
}

// rows are the stored lines of each run, by number.
func (w *cutWorld) rows() map[string]map[schema.Seq]string {
	w.t.Helper()
	out := make(map[string]map[schema.Seq]string)
	lines, _ := storedRows(w.t, w.archive)
	for _, l := range lines {
		if out[l.at.run.Run] == nil {
			out[l.at.run.Run] = make(map[schema.Seq]string)
		}
		out[l.at.run.Run][l.at.seq] = l.text
	}
	return out
}

// served returns the lines of a run: none of one that is not there, as one is whose only events were lost.
func served(t testing.TB, base, run string) []string {
	t.Helper()
	if code, _ := getText(base + "/v1/agent/runs/" + run + "/events?limit=1"); code == http.StatusNotFound {
		return nil
	}
	return events(t, base+"/v1/agent/runs/"+run)
}

// judge compares everything that is served with what was stored at the moment of the cut and what was acknowledged.
func (w *cutWorld) judge(what string, stored map[string]map[schema.Seq]string) {
	w.t.Helper()
	acked, lost, kept, refilled := 0, 0, 0, 0
	for i := range cutRuns {
		run := fmt.Sprint("run_", i)
		lines := served(w.t, w.bases[0], run)
		for _, base := range w.bases[1:] {
			if other := served(w.t, base, run); !slices.Equal(other, lines) {
				w.t.Errorf("%s: %s: two edges serve %d and %d lines", what, run, len(lines), len(other))
			}
		}
		for seq, line := range stored[run] {
			if int(seq) > len(lines) || lines[seq-1] != line {
				w.t.Fatalf("%s: FORK: %s: what is stored at %d is not what is served, of %d", what, run, seq, len(lines))
			}
			refilled++
		}
		whole, gone := holds(w.t, lines, w.before[run])
		acked, kept, lost = acked+len(w.before[run]), kept+whole, lost+gone
		if _, gone := holds(w.t, lines, w.sure[run]); gone > 0 {
			w.t.Errorf("%s: %s: %d batches that were acknowledged since the cut are lost", what, run, gone)
		}
		for name, a := range w.before[run] {
			if _, archived := stored[run][a.Last]; archived && gone > 0 {
				if n, _ := holds(w.t, lines, map[string]ack{name: a}); n == 0 {
					w.t.Errorf("%s: %s: batch %s was acknowledged and stored, and is lost", what, run, name)
				}
			}
		}
	}
	w.t.Logf("%s: %d batches acknowledged before, %d there, %d in neither and lost; %d stored rows at their numbers, %d batches since: lost 0, forks 0",
		what, acked, kept, lost, refilled, batches(w.sure))
}

func batches(all map[string]map[string]ack) (n int) {
	for _, of := range all {
		n += len(of)
	}
	return n
}

// cycle lets a cut happen under load, and checks what is left, at once and after more load.
func (w *cutWorld) cycle(what string, rnd *rand.Rand, cut func() (happen func())) {
	w.t.Helper()
	end := w.load.run(w.bases)
	<-time.After(time.Duration(300+rnd.IntN(700)) * time.Millisecond)
	happen := cut()
	<-time.After(time.Duration(200+rnd.IntN(1500)) * time.Millisecond)
	w.down()
	end()
	w.before = w.load.take()
	happen()
	stored := w.rows()
	w.up()
	end = w.load.run(w.bases)
	// Edges that outlive the cut refuse everything until a persister has compared the log.
	eventually(w.t, 60*time.Second, "every edge takes batches again", func() bool { return w.load.taken(w.bases) })
	<-time.After(time.Duration(300+rnd.IntN(500)) * time.Millisecond)
	end()
	w.sure = w.load.take()
	eventually(w.t, 60*time.Second, "everything is stored", func() bool {
		left, err := pending(w.t.Context(), w.nats, w.archive)
		return err == nil && left == 0
	})
	w.judge(what, stored)
	for run, lines := range w.rows() {
		if n := len(served(w.t, w.bases[0], run)); len(lines) != n {
			w.t.Errorf("%s: %s: %d rows, %d lines are served", what, run, len(lines), n)
		}
	}
	if _, n := storedRows(w.t, w.archive); n > 0 {
		w.t.Errorf("%s: %d dead letters", what, n)
	}
}

// TestPowerCut: the log comes back as it was some time before, again and again, while the archive has more. Nothing
// that is stored is numbered again, and everything that is acknowledged afterwards is there.
func TestPowerCut(t *testing.T) {
	for name, shape := range map[string]func(*testing.T) *cutShape{"dev": cutDev, "split": cutSplit} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			n := kills(t, 3)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			w := &cutWorld{cutShape: shape(t), t: t, load: &cutLoad{t: t, acked: make(map[string]map[string]ack)}}
			for i := range n {
				w.cycle(fmt.Sprintf("cut %d of %d", i+1, n), rnd, func() func() { return w.image(t, w.logDir) })
				if t.Failed() {
					return
				}
			}
			for _, admin := range w.admins {
				_, text := getText("http://" + admin + "/metrics")
				lost, _, _ := scraped(text, "agentstream_lost_events_total")
				t.Logf("an edge says that %.0f events are lost", lost)
			}
		})
	}
}

// TestSixCuts: the tail of the log, all of it, one partition, a stream that is made anew under the edges, a
// database that is older than the log, and both older.
func TestSixCuts(t *testing.T) {
	beside(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	world := func(s *cutShape) *cutWorld {
		return &cutWorld{cutShape: s, t: t, load: &cutLoad{t: t, acked: make(map[string]map[string]ack)}}
	}
	w := world(cutDev(t))
	gone := func(dir string) func() func() {
		return func() func() {
			return func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	partition := filepath.Join(w.logDir, "jetstream", "$G", "streams", natskit.StreamName(schema.Partition("run_0", 4)))
	w.cycle("1 tail gone", rnd, func() func() { return w.image(t, w.logDir) })
	w.cycle("2 whole log gone", rnd, gone(w.logDir))
	w.cycle("3 one partition gone", rnd, gone(partition))
	w.cycle("5 database older", rnd, func() func() { return w.databaseImage() })
	w.cycle("6 both older, the database more", rnd, func() func() {
		db := w.databaseImage()
		<-time.After(300 * time.Millisecond)
		log := w.image(t, w.logDir)
		return func() { db(); log() }
	})
	w.cycle("6 both older, the log more", rnd, func() func() {
		log := w.image(t, w.logDir)
		<-time.After(1500 * time.Millisecond)
		db := w.databaseImage()
		return func() { db(); log() }
	})
	if t.Failed() {
		return
	}
	w = world(cutSplit(t))
	w.down, w.up = func() {}, func() {}
	w.cycle("4 stream made anew", rnd, func() func() { return func() { w.madeAnew() } })
}

// databaseImage copies the database of a dev server as the disk has it at one moment.
func (w *cutWorld) databaseImage() (back func()) {
	w.t.Helper()
	kept := w.t.TempDir()
	files := []string{"archive.db", "archive.db-wal", "archive.db-shm"}
	move := func(from, to string) {
		for _, f := range files {
			if err := os.Remove(filepath.Join(to, f)); err != nil && !os.IsNotExist(err) {
				w.t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(from, f))
			if os.IsNotExist(err) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, f), b, 0o600)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.pause(syscall.SIGSTOP)
	move(w.archive, kept)
	w.pause(syscall.SIGCONT)
	return func() { move(kept, w.archive) }
}

// madeAnew deletes the streams and declares them again, while edges and persister run.
func (w *cutWorld) madeAnew() {
	w.t.Helper()
	nc, err := natskit.Dial(w.nats, "anew")
	if err != nil {
		w.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	for p := range 4 {
		if err == nil {
			err = js.DeleteStream(w.t.Context(), natskit.StreamName(p))
		}
	}
	if err == nil {
		err = natskit.Declare(w.t.Context(), js, natskit.Layout{Partitions: 4})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// storedRows reads the rows of an archive, and counts its dead letters.
func storedRows(t *testing.T, archive string) (lines []line, letters int) {
	t.Helper()
	if _, err := os.Stat(archive); err != nil {
		a := readArchive(t, archive)
		return a.lines, a.letters
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(archive, "archive.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("select koder_user_id, run_id, seq, line from agent_run_events")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var l line
		if err := rows.Scan(&l.at.run.Tenant, &l.at.run.Run, &l.at.seq, &l.text); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if err := errors.Join(rows.Err(), db.QueryRow("select count(*) from agent_dead_letters").Scan(&letters)); err != nil {
		t.Fatal(err)
	}
	return lines, letters
}
