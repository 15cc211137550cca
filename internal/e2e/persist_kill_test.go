package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// The faults of campaigns. Each has its share of all kills.
const (
	killPersist  = "kill -9 of persist"
	killEdge     = "kill -9 of an edge"
	killWorker   = "kill -9 of a worker"
	stopPostgres = "immediate stop of PostgreSQL"
	killPostgres = "kill -9 of PostgreSQL"
	killNATS     = "kill -9 of NATS"
)

var archiveFaults = []string{killPersist, stopPostgres, killPostgres, killNATS}

// fault is one kill: what, when after the one before, and how long it stays down.
type fault struct {
	kind      string
	which     int // of the role's two processes
	gap, down time.Duration
}

// faultPlan returns n faults, each kind as often as the others, in an order and at times that the seed
// says.
func faultPlan(kinds []string, n int, seed uint64) []fault {
	rnd := rand.New(rand.NewPCG(seed, 0))
	plan := make([]fault, n)
	for i := range plan {
		plan[i] = fault{
			kind: kinds[i%len(kinds)], which: rnd.IntN(2),
			gap:  time.Duration(100+rnd.IntN(1400)) * time.Millisecond,
			down: time.Duration(rnd.IntN(1500)) * time.Millisecond,
		}
	}
	rnd.Shuffle(n, func(i, j int) { plan[i].kind, plan[j].kind = plan[j].kind, plan[i].kind })
	return plan
}

// archiveWorld is a deployment whose parts can be killed: PostgreSQL, NATS, and two processes of each role, two
// persisters at least.
type archiveWorld struct {
	t        *testing.T
	nats     *natsProc
	postgres *testkit.PostgresServer
	dsn      string
	roles    map[string][2]*role // by the fault that they are killed by

	mu    sync.Mutex
	down  map[string]chan struct{} // what is down, until it is back
	fired map[string]int
	atIt  int // kills of a persister that had something to do
}

func newArchiveWorld(t *testing.T) *archiveWorld {
	w := newServers(t)
	w.start(killPersist, "persist")
	return w
}

// newServers starts PostgreSQL and NATS, and nothing of ours.
func newServers(t *testing.T) *archiveWorld {
	w := &archiveWorld{t: t, roles: make(map[string][2]*role), down: make(map[string]chan struct{}),
		fired: make(map[string]int)}
	w.postgres = testkit.StartPostgres(t)
	w.dsn = w.postgres.Database(t)
	w.nats = startNATS(t, t.TempDir())
	migrate(t, w.dsn, w.nats.url())
	return w
}

// start starts two processes of a role, which a kind of fault kills.
func (w *archiveWorld) start(kind, name string, args ...string) (two [2]*role) {
	for i := range two {
		two[i] = newRole(w.t, name, w.nats.url(), w.dsn, args...)
		two[i].start()
	}
	for _, r := range two {
		r.await(w.t)
	}
	w.roles[kind] = two
	return two
}

// strike lets a fault happen. What is down already is waited for; what is killed comes back by itself
// after its time, so that faults overlap.
func (w *archiveWorld) strike(f fault) {
	target := f.kind
	if target == stopPostgres {
		target = killPostgres
	}
	if _, two := w.roles[target]; two {
		target += strconv.Itoa(f.which)
	}
	w.back(target)
	end, start := w.parts(f)
	w.mu.Lock()
	up := make(chan struct{})
	w.down[target] = up
	w.mu.Unlock()
	if f.kind == killPersist {
		if left, err := pending(w.t.Context(), w.nats.url(), w.dsn); err != nil || left > 0 {
			w.atIt++
		}
	}
	if end() {
		w.fired[f.kind]++
	}
	time.AfterFunc(f.down, func() {
		defer close(up)
		start()
	})
}

// parts returns how a fault's target is ended and started again.
func (w *archiveWorld) parts(f fault) (end func() bool, start func()) {
	postgres := func(stop func() error) func() bool {
		return func() bool {
			up := w.postgres.PID() != 0
			if err := stop(); err != nil {
				w.t.Error(err)
			}
			return up
		}
	}
	again := func() {
		if err := w.postgres.Start(); err != nil {
			w.t.Error(err)
		}
	}
	switch f.kind {
	case stopPostgres:
		return postgres(w.postgres.Stop), again
	case killPostgres:
		return postgres(w.postgres.Kill), again
	case killNATS:
		return w.nats.kill, w.nats.start
	}
	r := w.roles[f.kind][f.which]
	return r.kill, r.start
}

// back waits until a target is up again. For "" it waits until all targets are up and all roles are ready.
func (w *archiveWorld) back(target string) {
	w.mu.Lock()
	var wait []chan struct{}
	for name, up := range w.down {
		if target == "" || name == target {
			wait = append(wait, up)
		}
	}
	w.mu.Unlock()
	for _, up := range wait {
		<-up
	}
	if target == killNATS || target == "" {
		w.nats.await()
	}
	for kind, two := range w.roles {
		for i, r := range two {
			switch target {
			case "":
				r.await(w.t)
			case kind + strconv.Itoa(i):
				eventually(w.t, 60*time.Second, r.name+" runs", func() bool { return r.process() != 0 })
			}
		}
	}
}

// teller publishes turns to some runs and remembers what it was told is stored.
type teller struct {
	t    *testing.T
	rnd  *rand.Rand
	log  *pubjs.Log
	runs []schema.RunKey
	told map[place]said // of this goroutine until it has ended
	pack int            // number of the next pack, for payloads that tell events apart
	name string
}

// run publishes turn after turn until ctx ends; runs that have ended go on with the next one.
func (p *teller) run(ctx context.Context) {
	for ctx.Err() == nil {
		p.turn(ctx, p.runs[p.rnd.IntN(len(p.runs))])
	}
}

func (p *teller) turn(ctx context.Context, run schema.RunKey) {
	pub, err := producers.New(producers.Config{Log: p.log, Key: run, Timeout: time.Second})
	if err != nil {
		p.t.Error(err)
		return
	}
	p.say(pub, run, schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running","reason":null}`)},
		schema.Event{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m","role":"assistant"}`)})
	for range 1 + p.rnd.IntN(12) {
		p.say(pub, run, p.deltas()...)
		select {
		case <-time.After(time.Duration(40+p.rnd.IntN(160)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	p.say(pub, run, schema.Event{Type: schema.TypeMessageEnd,
		Payload: fmt.Appendf(nil, `{"message_id":"m","stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":1}}`, 1+p.pack)},
		schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done","reason":null}`)})
	if err := pub.Close(context.Background()); err != nil {
		p.t.Errorf("%s: close %s: %v", p.name, run, err)
	}
}

// deltas makes a pack of 1 to 100 events, of the run itself or of a child.
func (p *teller) deltas() []schema.Event {
	child := ""
	if p.rnd.IntN(4) == 0 {
		child = "kid_" + strconv.Itoa(p.rnd.IntN(2))
	}
	events := make([]schema.Event, 1+p.rnd.IntN(100))
	for i := range events {
		events[i] = schema.Event{Type: schema.TypeTextDelta, ChildID: child,
			Payload: fmt.Appendf(nil, `{"text":"%s %d %d \ud800\u0000","b":1e400, "a":1.10,"a":2}`, p.name, p.pack, i)}
	}
	p.pack++
	return events
}

// say stores events and remembers where.
func (p *teller) say(pub *producers.Publisher, run schema.RunKey, events ...schema.Event) {
	got, err := pub.Append(context.Background(), events...)
	if err != nil {
		p.t.Errorf("%s: %s: %v", p.name, run, err)
		return
	}
	if int(got.Last-got.First)+1 != len(events) {
		p.t.Errorf("%s: %s: %d events are acknowledged as %d to %d", p.name, run, len(events), got.First, got.Last)
		return
	}
	for i, e := range events {
		p.told[place{run, got.First + schema.Seq(i)}] = said{e.Type, e.ChildID, string(e.Payload)}
	}
}

// tellers starts n of them, each with runs of three tenants. done stops them and gives what they were
// told.
func tellers(t *testing.T, url string, n int, seed uint64) (done func() map[place]said) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var all []*teller
	var wg sync.WaitGroup
	for i := range n {
		nc, err := natskit.Dial(url, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		log, err := pubjs.Open(t.Context(), nc)
		if err != nil {
			t.Fatal(err)
		}
		p := &teller{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i+1))), log: log, told: make(map[place]said),
			name: "t" + strconv.Itoa(i)}
		for _, tenant := range []string{"acme", "umbrella", "default"} {
			p.runs = append(p.runs, schema.RunKey{Tenant: tenant, Run: "run_" + strconv.Itoa(i)})
		}
		all = append(all, p)
		wg.Go(func() { p.run(ctx) })
	}
	return func() map[place]said {
		cancel()
		wg.Wait()
		told := make(map[place]said)
		for _, p := range all {
			for at, s := range p.told {
				told[at] = s
			}
		}
		return told
	}
}

// seedOf returns the seed of a campaign: AGENTSTREAM_SEED, or a new one.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("AGENTSTREAM_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)),
		10, 64)
	if err != nil {
		t.Fatalf("AGENTSTREAM_SEED: %v", err)
	}
	return seed
}

// Two persisters, PostgreSQL and NATS are killed at random points, at times several at once, while
// producers publish: afterwards the archive is the log, row by row and head by head, and everything
// that was acknowledged is in it. AGENTSTREAM_SEED repeats a campaign's faults.
func TestKillArchive(t *testing.T) {
	beside(t)
	n, seed := kills(t, 9), seedOf(t)
	began := time.Now()
	t.Logf("AGENTSTREAM_SEED=%d AGENTSTREAM_KILLS=%d", seed, n)
	w := newArchiveWorld(t)
	done := tellers(t, w.nats.url(), 5, seed)
	plan := faultPlan(archiveFaults, n, seed)
	for i, f := range plan {
		<-time.After(f.gap)
		w.strike(f)
		if t.Failed() {
			t.Fatalf("at fault %d, %+v", i+1, f)
		}
		if (i+1)%10 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d kills, %s\n", i+1, n, time.Since(began).Round(time.Second))
		}
	}
	w.back("")
	told := done()
	struck := time.Since(began)
	eventually(t, 120*time.Second, "the persisters have caught up", func() bool {
		left, err := pending(t.Context(), w.nats.url(), w.dsn)
		return err == nil && left == 0
	})
	caught := time.Since(began) - struck
	log, rows := readLog(t, w.nats.url()), readArchive(t, w.dsn)
	for _, complaint := range judgeArchive(log, rows, told) {
		t.Error(complaint)
	}
	for _, kind := range archiveFaults {
		t.Logf("%3d × %s", w.fired[kind], kind)
		if w.fired[kind] < n/len(archiveFaults) {
			t.Errorf("%s: fired %d times, its share is %d", kind, w.fired[kind], n/len(archiveFaults))
		}
	}
	if w.atIt == 0 {
		t.Error("no kill ever hit a persister that had something to do")
	}
	t.Logf("%d kills (%d of persist at work) in %s, caught up %s later: %d events acknowledged, %d in the log, %d rows of %d runs",
		n, w.atIt, struck.Round(time.Second), caught.Round(time.Millisecond), len(told), len(log.lines),
		len(rows.lines), len(rows.heads))
}

// The same seed gives the same faults, and every kind has its share.
func TestFaultPlanRepeats(t *testing.T) {
	a, b := faultPlan(archiveFaults, 100, 7), faultPlan(archiveFaults, 100, 7)
	count := make(map[string]int)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("fault %d is %+v and %+v", i, a[i], b[i])
		}
		count[a[i].kind]++
	}
	for _, kind := range archiveFaults {
		if count[kind] != 25 {
			t.Errorf("%s: %d of 100", kind, count[kind])
		}
	}
	if c := faultPlan(archiveFaults, 100, 8); c[0] == a[0] && c[1] == a[1] && c[2] == a[2] {
		t.Error("another seed gives the same faults")
	}
}
