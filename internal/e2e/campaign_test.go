package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/schema"
)

// kills is how often the long form kills; the short form is part of every test run.
func kills(t *testing.T, short int) int {
	t.Helper()
	s := os.Getenv("AGENTSTREAM_KILLS")
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("AGENTSTREAM_KILLS=%q", s)
	}
	return n
}

// ledger is what clients were told: the acknowledged batches of each run.
type ledger struct {
	mu     sync.Mutex
	acks   map[string]map[string]ack // run → key → answer
	unsure atomic.Int64              // attempts whose outcome the client never learned
}

type ack struct {
	First schema.Seq `json:"first_seq"`
	Last  schema.Seq `json:"last_seq"`
}

const campaignRuns, batchEvents = 4, 5

// client publishes batches to one run, one after the other, until ctx ends. Each is repeated under
// its key until it is acknowledged, as a producer that must not lose anything does.
func (l *ledger) client(ctx context.Context, t *testing.T, base, run, who string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s-%d", who, n)
		var body bytes.Buffer
		for i := range batchEvents {
			fmt.Fprintf(&body, `{"type":"text.delta","payload":{"text":"%s:%d:%d \ud800\u0000 1e400","n":1e400}}`+"\n",
				who, n, i)
		}
		answer, unsure, err := post(ctx, client, base+"/v1/agent/runs/"+run+"/events", key, body.Bytes())
		l.unsure.Add(int64(unsure))
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: %v", key, err)
			}
			return
		}
		var a ack
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			t.Errorf("%s: answer %s", key, answer)
			return
		}
		l.mu.Lock()
		l.acks[run][key] = a
		l.mu.Unlock()
	}
}

// check compares a run, as lines in order, with what was acknowledged: seq has no hole, every
// acknowledged event is there at its number, and no event is there twice.
func (l *ledger) check(t *testing.T, source, run string, lines []string) {
	t.Helper()
	seen := make(map[string]schema.Seq)
	for i, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatalf("%s: %s: line %d: %v", source, run, i+1, err)
		}
		if e.Seq != schema.Seq(i+1) {
			t.Fatalf("%s: %s: seq %d where %d is next", source, run, e.Seq, i+1)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(e.Payload), `{"text":"`), " ")
		if before, twice := seen[name]; twice {
			t.Fatalf("%s: %s: event %s stands at %d and at %d", source, run, name, before, e.Seq)
		}
		seen[name] = e.Seq
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.acks[run] {
		who, n, _ := strings.Cut(key, "-")
		for i := range batchEvents {
			name := fmt.Sprintf("%s:%s:%d", who, n, i)
			if at, ok := seen[name]; !ok || at < a.First || at > a.Last {
				t.Fatalf("%s: %s: acknowledged event %s (%d to %d) stands at %d", source, run, name, a.First, a.Last, at)
			}
		}
	}
}

// watcher follows a run over SSE, comes back with its cursor whenever the stream is cut, and checks
// each number as it comes.
type watcher struct {
	run   string
	lines []string // of the follower's goroutine, until it has ended
	have  atomic.Int64
}

func (w *watcher) follow(ctx context.Context, t *testing.T, base string) {
	for ctx.Err() == nil {
		w.once(ctx, t, base)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *watcher) once(ctx context.Context, t *testing.T, base string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/agent/runs/"+w.run+"/stream?detail=full", nil)
	if err != nil {
		t.Error(err)
		return
	}
	if n := len(w.lines); n > 0 {
		req.Header.Set("Last-Event-ID", strconv.Itoa(n))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("watch %s behind %d: status %d", w.run, len(w.lines), resp.StatusCode)
		}
		return
	}
	data := ""
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return // cut, inside a frame too: an unfinished frame does not count
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok {
			data = strings.TrimSuffix(v, "\n")
		}
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			if v != strconv.Itoa(len(w.lines)+1)+"\n" {
				t.Errorf("watch %s: id %q behind %d", w.run, v, len(w.lines))
				return
			}
			if blank, err := r.ReadString('\n'); err != nil || blank != "\n" {
				return
			}
			w.lines = append(w.lines, data)
			w.have.Store(int64(len(w.lines)))
		}
	}
}

// dev is killed at random moments while producers publish and watchers watch; each time it comes
// back on the same data. No acknowledged event is lost, none doubled, seq has no hole: in the log,
// for every watcher, and in SQLite.
func TestKillDev(t *testing.T) {
	beside(t)
	n := kills(t, 6)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	nats, data := testkit.FreeAddr(t), t.TempDir()
	p := newProc(t, "dev", "--no-demo", "--data", data, "--nats-listen", nats, "--partitions", "4")
	p.start()
	l := &ledger{acks: make(map[string]map[string]ack)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients, readers sync.WaitGroup
	var watchers []*watcher
	base := "http://" + p.addr
	watchCtx, endWatching := context.WithCancel(t.Context())
	defer endWatching()
	for i := range campaignRuns {
		run := fmt.Sprintf("run_%d", i)
		l.acks[run] = make(map[string]ack)
		for c := range 2 {
			clients.Go(func() { l.client(ctx, t, base, run, fmt.Sprintf("c%d", c)) })
		}
		w := &watcher{run: run}
		watchers = append(watchers, w)
		readers.Go(func() { w.follow(watchCtx, t, base) })
	}
	for range n {
		<-time.After(time.Duration(20+rnd.IntN(500)) * time.Millisecond)
		p.kill()
		p.start()
		if t.Failed() {
			break
		}
	}
	<-time.After(200 * time.Millisecond)
	cancel()
	clients.Wait()
	if l.unsure.Load() == 0 {
		t.Fatal("no kill ever hit a publish that was under way")
	}
	total := 0
	for _, w := range watchers {
		lines := events(t, base+"/v1/agent/runs/"+w.run)
		l.check(t, "log", w.run, lines)
		eventually(t, 20*time.Second, "watcher has everything", func() bool { return w.have.Load() >= int64(len(lines)) })
		total += len(lines)
	}
	endWatching()
	readers.Wait()
	acked := 0
	for _, w := range watchers {
		l.check(t, "watcher", w.run, w.lines)
		acked += len(l.acks[w.run]) * batchEvents
	}
	// What SQLite holds is what the log holds: the streams forget, and everything is read again.
	url := "nats://" + nats
	eventually(t, 60*time.Second, "everything is in SQLite", func() bool { return drained(t, url, data) })
	purgeAll(t, url)
	for _, w := range watchers {
		lines := events(t, base+"/v1/agent/runs/"+w.run)
		if len(lines) != len(w.lines) {
			t.Fatalf("SQLite: %s: %d events of %d", w.run, len(lines), len(w.lines))
		}
		for i := range lines {
			if lines[i] != w.lines[i] {
				t.Fatalf("SQLite: %s: seq %d differs", w.run, i+1)
			}
		}
	}
	t.Logf("%d kills, %d events acknowledged, %d stored, %d attempts without an answer: 0 lost, 0 doubled, 0 holes", n,
		acked, total, l.unsure.Load())
}

// persist alone is killed while the SDK publishes: the rows equal the stream.
func TestKillPersist(t *testing.T) {
	beside(t)
	n := kills(t, 6)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	k := testkit.NATS(t)
	dsn := testkit.Postgres(t)
	url := k.Server.ClientURL()
	migrate(t, dsn, url)
	p := newProc(t, "persist", "--nats", url)
	p.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
	p.start()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range campaignRuns {
		wg.Go(func() { sdkClient(ctx, t, k, fmt.Sprintf("run_%d", i)) })
	}
	hits := 0
	for range n {
		// It takes the partitions over when the one before has rested for a while, and is killed at work.
		eventually(t, 30*time.Second, "the persister stores", func() bool {
			_, text := getText("http://" + p.admin + "/metrics")
			rows, _, _ := scraped(text, "agentstream_persisted_rows_total")
			return rows > 0
		})
		<-time.After(time.Duration(rnd.IntN(500)) * time.Millisecond)
		if !drained(t, url, dsn) {
			hits++
		}
		p.kill()
		p.start()
	}
	cancel()
	wg.Wait()
	if hits == 0 {
		t.Fatal("no kill ever hit the persister at work")
	}
	eventually(t, 60*time.Second, "the persister has caught up", func() bool { return drained(t, url, dsn) })
	want := streamLines(t, url)
	got := tableLines(t, dsn)
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("%d rows, %d events in the streams", len(got), len(want))
	}
	for key, line := range want {
		if got[key] != line {
			t.Fatalf("%s: row is %q, event is %q", key, got[key], line)
		}
	}
	t.Logf("%d kills, %d of them at work: %d rows equal %d events", n, hits, len(got), len(want))
}

func tableLines(t *testing.T, dsn string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var letters int
	if err := conn.QueryRow(t.Context(), "select count(*) from agent_dead_letters").Scan(&letters); err != nil ||
		letters != 0 {
		t.Fatalf("%d dead letters, err %v", letters, err)
	}
	rows, err := conn.Query(t.Context(), "select koder_user_id, run_id, seq, line from agent_run_events")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for rows.Next() {
		var tenant, run, line string
		var seq int64
		if err := rows.Scan(&tenant, &run, &seq, &line); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%s/%s/%d", tenant, run, seq)
		if _, twice := out[key]; twice {
			t.Fatalf("two rows for %s", key)
		}
		out[key] = line
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
