package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/adapters/provider/providertest"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// metisEdges starts edges on one log, over the archive in PostgreSQL where there is one.
func metisEdges(t *testing.T, dsn string, n int, more ...string) (url string, edges []*proc) {
	t.Helper()
	url = testkit.NATS(t).Server.ClientURL()
	if dsn != "" {
		migrate(t, dsn, url)
	}
	start := func(role string) *proc {
		p := newProc(t, role, append([]string{"--nats", url}, more...)...)
		if dsn != "" {
			p.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
		}
		p.start()
		return p
	}
	for range n {
		edges = append(edges, start("edge"))
	}
	if more = nil; dsn != "" {
		start("persist")
	}
	return url, edges
}

// metisDrop drops from all streams what is before a position, of which keep makes another one.
func metisDrop(t *testing.T, url string, keep func(last uint64) uint64) {
	t.Helper()
	eachStream(t, url, func(s jetstream.Stream) {
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs == 0 {
			return
		}
		if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(keep(info.State.LastSeq))); err != nil {
			t.Fatal(err)
		}
	})
}

// metisForget waits until everything is in the archive, and drops it from the log but for the newest message.
func metisForget(t *testing.T, url, archive string) {
	t.Helper()
	eventually(t, time.Minute, "everything is in the archive", func() bool {
		yes := true
		eachStream(t, url, func(s jetstream.Stream) {
			info, err := s.Info(t.Context())
			yes = yes && err == nil && (info.State.Msgs == 0 || floor(t, s, archive) >= info.State.LastSeq)
		})
		return yes
	})
	metisDrop(t, url, func(last uint64) uint64 { return last })
}

// metisRun is a run whose every event is resumed behind.
type metisRun struct {
	name  string
	whole []metisEvent // of the run and its children
}

// TestMetisResume: prefix and rest are the whole, byte for byte, behind the events of every recording and of random
// runs, under three filters, from the log and from PostgreSQL, on both of two edges. Each recording is valid as a
// session, and what is streamed of its messages is their final content.
func TestMetisResume(t *testing.T) {
	beside(t)
	dsn := testkit.Postgres(t)
	url, edges := metisEdges(t, dsn, 2)
	m := metisAt(t, edges[0])
	runs := metisRuns(t, m, edges[0])
	each := 3 // cursors of a run
	if metisLong() {
		each = 1 << 30
	}
	metisResumeAll(t, "log", edges, runs, each)
	metisForget(t, url, dsn)
	metisResumeAll(t, "PostgreSQL", edges, runs, each)
}

// metisRuns publishes recordings and random runs, and reads them whole.
func metisRuns(t *testing.T, m metis, p *proc) (runs []metisRun) {
	t.Helper()
	random := 12
	names := slices.Sorted(maps.Keys(recorded(t)))
	if metisLong() {
		random = 200
	}
	for i, name := range names {
		if !metisLong() && i%6 != 0 {
			continue
		}
		run := "mrec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
		publishFile(t, p.url(""), run, filepath.Join(providertest.Dir(t), filepath.FromSlash(name)))
		runs = append(runs, metisRun{name: run})
	}
	for i := range random {
		run := fmt.Sprintf("mgen_%d", i)
		postScenario(t, p.url("/v1/agent/runs/"+run+"/events"), metisOwn(schematest.Generate(60, uint64(i)).Events, run))
		runs = append(runs, metisRun{name: run})
	}
	replaced := 0
	for i := range runs {
		r := &runs[i]
		first := m.events(r.name)[0]
		c := m.watch(r.name, metisAll, first.ID, false)
		if end := c.closed(); end.code != 1000 {
			t.Errorf("%s ends with %v", r.name, end)
		}
		if r.whole = append([]metisEvent{first}, c.events...); c.ack.Replay != len(c.events) {
			t.Errorf("%s: %d events are said to be missed, %d came", r.name, c.ack.Replay, len(c.events))
		}
		if n := len(c.fold.Replaced); n > 0 && strings.HasPrefix(r.name, "mrec_") {
			t.Errorf("%s: what was streamed is not the final content of %v", r.name, c.fold.Replaced)
			replaced += n
		}
	}
	t.Logf("%d runs, each frame valid; %d messages whose final content is not what was streamed", len(runs), replaced)
	return runs
}

// metisOwn returns a scenario whose children have ids of the run's own.
func metisOwn(events []schema.Event, run string) []schema.Event {
	own := func(id string) string { return strings.ReplaceAll(id, "run_gen", run+"_c") }
	for i := range events {
		e := &events[i]
		e.ChildID = own(e.ChildID)
		e.Payload = []byte(own(string(e.Payload)))
		e.Path = nil
	}
	return events
}

// metisResumeAll resumes each run behind each of its events, or some, under each filter.
func metisResumeAll(t *testing.T, source string, edges []*proc, runs []metisRun, each int) {
	t.Helper()
	began := time.Now()
	type job struct {
		run    metisRun
		filter metisFilter
		at     int
	}
	jobs := make(chan job)
	var count atomic.Int64
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for j := range jobs {
				count.Add(1)
				since := j.run.whole[j.at]
				m := metisAt(t, edges[(w+j.at)%len(edges)])
				c := m.attach(j.run.name)
				c.bare = true // the same bytes have been held to the schemas
				if code := c.subscribe(j.filter.filter, since.ID, false); code != "" {
					t.Errorf("%s: %s behind %d of %s: %s", source, j.filter.name, j.at, j.run.name, code)
					continue
				}
				end := c.closed()
				var want []string
				for _, e := range j.run.whole[j.at+1:] {
					if j.filter.shows(j.run.name, &e) {
						want = append(want, e.raw)
					}
				}
				if got := bytesOf(c.events); !slices.Equal(got, want) || end.code != 1000 || c.ack.Replay != len(want) {
					t.Errorf("%s: %s behind %d of %s: %d events, %d are said, %d wanted, the end %v", source,
						j.filter.name, j.at, j.run.name, len(got), c.ack.Replay, len(want), end)
				}
				c.conn.Close()
			}
		})
	}
	for _, r := range runs {
		picked := rand.Perm(len(r.whole))
		for _, at := range picked[:min(each, len(picked))] {
			for _, f := range metisFilters {
				if f.workers || r.whole[at].Session == r.name {
					jobs <- job{r, f, at}
				}
			}
		}
	}
	close(jobs)
	all.Wait()
	t.Logf("%s: %d resumes, %s", source, count.Load(), time.Since(began).Round(time.Millisecond))
}

// TestMetisTwoEdges: under load, two clients on two edges see the same; one edge is killed, and its client goes on at
// the other. A worker is attached to in the instant in which it is sent out.
func TestMetisTwoEdges(t *testing.T) {
	beside(t)
	_, edges := metisEdges(t, testkit.Postgres(t), 2)
	one, two := metisAt(t, edges[0]), metisAt(t, edges[1])
	session := one.create()
	a, b := one.watch(session, metisAll, "", true), two.watch(session, metisAll, "", true)
	const pieces = 4000
	two.open(session)
	var writing, reading sync.WaitGroup
	reading.Go(func() {
		if end := b.closed(); end.code != 1000 {
			t.Errorf("%v", end)
		}
	})
	writing.Go(func() {
		for range pieces / 100 {
			two.appendText(session, 100, "x")
		}
	})
	for texts := 0; texts < pieces/2; {
		if e, err := a.event(); err != nil {
			t.Fatal(err)
		} else if e.Type == "text.delta" {
			texts++
		}
	}
	edges[0].kill()
	for { // what is in the client's buffers it has
		if _, err := a.event(); err != nil {
			break
		}
	}
	c := two.watch(session, metisAll, a.fold.Last, false)
	writing.Wait()
	two.append(strings.TrimSuffix(two.base, "/metis")+"/v1/agent/runs/"+session+"/events",
		`{"type":"run.lifecycle","payload":{"state":"done"}}`+"\n")
	if end := c.closed(); end.code != 1000 {
		t.Errorf("%v", end)
	}
	reading.Wait()
	if got := append(bytesOf(a.events), bytesOf(c.events)...); !slices.Equal(got, bytesOf(b.events)) {
		t.Errorf("%d events before the kill, %d behind it, %d without it", len(a.events), len(c.events), len(b.events))
	}
	if n := strings.Count(strings.Join(bytesOf(b.events), ""), `"text.delta"`); n != pieces {
		t.Errorf("%d of %d pieces", n, pieces)
	}
}

// TestMetisWorkerAtOnce attaches to workers as soon as an edge reports them, at another edge: all of them are there,
// from their first event on.
func TestMetisWorkerAtOnce(t *testing.T) {
	beside(t)
	_, edges := metisEdges(t, "", 2)
	one, two := metisAt(t, edges[0]), metisAt(t, edges[1])
	session := one.create()
	c := one.watch(session, metisFull, "", true)
	native := edges[0].url("/v1/agent/runs/" + session + "/events")
	one.open(session)
	rounds := 10
	if metisLong() {
		rounds = 100
	}
	for i := range rounds {
		worker := fmt.Sprintf("%s_w%d", session, i)
		var spawning sync.WaitGroup
		spawning.Go(func() {
			one.append(native, fmt.Sprintf(`{"type":"child.spawn","payload":{"child_id":%q,"prompt":"p"}}`+"\n", worker))
		})
		if got := c.until("delegate.started").p.WorkerSession; got != worker {
			t.Fatalf("%s is sent out, not %s", got, worker)
		}
		w := two.watch(worker, metisFull, "", true)
		spawning.Wait()
		one.append(native, fmt.Sprintf(`{"type":"run.lifecycle","child_id":%[1]q,"payload":{"state":"running"}}
{"type":"text.delta","child_id":%[1]q,"payload":{"text":"x"}}
{"type":"run.lifecycle","child_id":%[1]q,"payload":{"state":"done"}}
`, worker))
		if end := w.closed(); end.code != 1000 || !strings.Contains(w.story(), "message.start text.delta message.complete") {
			t.Errorf("%v behind %s", end, w.story())
		}
	}
}

// TestMetisSlowClient: a client that stops reading is cut, and is told why when it wakes; what it has missed comes
// behind its cursor. Nobody else loses anything (11).
func TestMetisSlowClient(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	session := m.create()
	others := 3
	if metisLong() {
		others = 200
	}
	m.open(session)
	slow := m.watch(session, metisFull, "", true)
	slow.bare = true
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	awake, sums := make([]*metisConn, others), make([]hash.Hash, others)
	for i := range awake {
		awake[i], sums[i] = m.watch(session, metisFull, "", true), sha256.New()
	}
	const step = 250
	pieces := 0
	texts := func(c *metisConn) (n int) {
		for _, e := range c.events {
			if e.Type == "text.delta" {
				n++
			}
		}
		return n
	}
	// publish lets those that read read, before more comes: the test's process may be slower than the server.
	publish := func(times int) (delays []time.Duration) {
		var mu sync.Mutex
		for range times {
			pieces += step
			began := time.Now()
			m.appendText(session, step, strings.Repeat("x", 500))
			var reading sync.WaitGroup
			for i, c := range awake {
				reading.Go(func() {
					for n := 0; n < step; {
						frame, err := c.read()
						if err != nil {
							t.Errorf("a client that reads: %v", err)
							return
						}
						if bytes.Contains(frame, []byte(`"type":"text.delta"`)) {
							n++
						}
						sums[i].Write(frame)
					}
					mu.Lock()
					defer mu.Unlock()
					delays = append(delays, time.Since(began))
				})
			}
			reading.Wait()
		}
		slices.Sort(delays)
		return delays
	}
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100].Round(100 * time.Microsecond) }
	with := p99(publish(12))
	end := slow.closed()
	if end.code != 1008 || end.reason != `{"code":"client_too_slow","message":"Outbound queue overflowed; reconnect with replay."}` {
		t.Errorf("the client wakes: %v", end)
	}
	if n := texts(slow); n == 0 || n >= pieces {
		t.Errorf("it has %d of %d pieces", n, pieces)
	}
	rest := m.watch(session, metisFull, slow.fold.Last, false)
	rest.bare = true
	for n := texts(slow); n < pieces; n++ {
		rest.until("text.delta")
	}
	sum := sha256.New()
	for _, e := range append(slow.events, rest.events...) {
		fmt.Fprintf(sum, `{"type":"event","event":%s}`, e.raw)
	}
	for i := range sums {
		if !bytes.Equal(sums[i].Sum(nil), sum.Sum(nil)) {
			t.Errorf("client %d has other events than %d and the %d behind them", i, len(slow.events), len(rest.events))
		}
	}
	rest.close()
	t.Logf("%d others have %d events after %v in 99 of 100 cases, without the slow client after %v", others, step, with,
		p99(publish(12)))
}

// TestMetisAttaches: clients that attach at random moments of a session show at its end what a client shows that was
// there all the time.
func TestMetisAttaches(t *testing.T) {
	beside(t)
	sessions, clients := 2, 30
	if metisLong() {
		sessions, clients = 20, 50
	}
	p := newProc(t, "dev", "--demo-speed", "8", "--data", t.TempDir())
	p.start()
	m := metisAt(t, p)
	var partial atomic.Int64
	for range sessions {
		session := m.create()
		whole := m.watch(session, metisAll, "", true)
		late := make([]*metisConn, clients)
		var attaching, reading sync.WaitGroup
		attaching.Add(clients)
		for i := range late {
			reading.Go(func() {
				defer func() {
					if late[i] == nil {
						attaching.Done()
					}
				}()
				<-time.After(time.Duration(rand.Int64N(int64(5 * time.Second))))
				c := m.watch(session, metisFull, "", true)
				late[i] = c
				attaching.Done()
				if strings.Contains(string(c.snapshot), `"status":"partial"`) {
					partial.Add(1)
				}
				c.closed()
			})
		}
		for _, text := range []string{"long", "think and use the tools", "delegate", "long tools"} {
			m.say(session, text)
			whole.turnEnd()
		}
		attaching.Wait()
		m.must(200, "DELETE", "/sessions/"+session, nil)
		whole.closed()
		reading.Wait()
		for _, c := range late {
			metisBehind(t, c, c.fold.Snapshot, whole)
		}
	}
	if n := sessions * clients; partial.Load() < int64(n/10) {
		t.Errorf("only %d of %d snapshots were in a message", partial.Load(), n)
	} else {
		t.Logf("%d attaches, %d in a message", n, partial.Load())
	}
}
