package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

const clientsRun = "run_clients"

// viewer is one client program that watches the run through a proxy of its own.
type viewer struct {
	name   string
	script string   // of js, or of python; "" for the client that is written in Go
	env    []string // beyond what all get
	full   bool     // detail=full; else the default detail
	header bool     // the proxy authenticates: this client can set no header
	hasty  bool     // takes its cursor from frames that have not ended, and loses them
	mean   int      // bytes between cuts; default by detail
	stalls bool     // is also cut by silences

	proxy *cutter
	mu    sync.Mutex
	got   []received
	stats string
	over  atomic.Bool
	err   error
}

// received is one line of a script.
type received struct {
	ID   string          `json:"id"`
	Data string          `json:"data"`
	Gap  json.RawMessage `json:"gap"`
	Over bool            `json:"over"`
}

func viewers() []*viewer {
	return []*viewer{
		{name: "npm eventsource", script: "eventsource.mjs", full: true},
		{name: "fetch-event-source", script: "fetch-event-source.mjs", env: []string{"CURSOR=page"}, full: true},
		{name: "fetch-event-source, its own cursor", script: "fetch-event-source.mjs", env: []string{"CURSOR=library"},
			full: true, hasty: true},
		{name: "Chromium EventSource", script: "chromium.mjs", env: []string{"TRANSPORT=bare"}, full: true, header: true},
		{name: "npm ws", script: "ws.mjs", full: true},
		{name: "grpc-go", full: true},
		{name: "agentstream, fetch, full", script: "agentstream.mjs", env: []string{"TRANSPORT=fetch"}, full: true},
		{name: "agentstream, fetch", script: "agentstream.mjs", env: []string{"TRANSPORT=fetch"}},
		{name: "agentstream, ws", script: "agentstream.mjs", env: []string{"TRANSPORT=websocket"}},
		{name: "agentstream, Chromium, EventSource", script: "chromium.mjs", env: []string{"TRANSPORT=eventsource"},
			full: true},
		{name: "agentstream, Python, full", script: "watch.py", full: true, stalls: true},
		{name: "agentstream, Python", script: "watch.py", stalls: true},
		{name: "agentstream, Python, async, full", script: "watch.py async", full: true, stalls: true},
		{name: "agentstream, Python, async", script: "watch.py async", stalls: true},
		{name: "agentstream, Chromium, WebSocket", script: "chromium.mjs", env: []string{"TRANSPORT=websocket"}},
	}
}

// T3 with the clients that people use. A run is published, with children, hostile payloads and all of
// Unicode's pitfalls; each client watches it through a proxy over two edges that cuts its connections
// at random byte counts, within frames too; one edge is killed on the way and comes back. Every client
// has every event once, in order, byte for byte; in the default detail all that is merged is explained
// and sums up to the same.
func TestT3ClientsBehindACuttingProxy(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	needPython(t)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	page := servePage(t)
	w := edgesFor(t, page)
	all := plot(seed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(wantCuts())*24*time.Second)
	defer cancel()
	enough := make(chan struct{})
	published := make(chan error, 1)
	started := make(chan struct{})
	go func() { published <- perform(ctx, w.nats, all, started, enough) }()
	<-started

	clients := viewers()
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	for i, c := range clients {
		c.start(t, seed+uint64(i), w)
		running.Go(func() { c.err = c.run(ctx, node, chromium, page) })
	}
	fewest := func() int64 {
		return slices.MinFunc(clients, func(a, b *viewer) int { return int(a.proxy.cuts.Load() - b.proxy.cuts.Load()) }).proxy.cuts.Load()
	}
	awaitCuts(ctx, t, fewest, 5, clients)
	w.edges[0].kill()
	awaitCuts(ctx, t, fewest, 10, clients)
	w.edges[0].start()
	awaitCuts(ctx, t, fewest, wantCuts(), clients)
	close(enough)
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	running.Wait()
	log := events(t, w.edges[1].url("/v1/agent/runs/"+clientsRun))
	t.Logf("%d events in the log", len(log))
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) { c.check(t, log) })
	}
}

// edgesFor starts two edges that let a page read their answers, and a persister.
func edgesFor(t *testing.T, page string) world {
	t.Helper()
	return edgesOn(t, testkit.NATS(t).Server.ClientURL(), page)
}

// edgesOn is edgesFor on a NATS server of the test's.
func edgesOn(t *testing.T, nats, page string) world {
	t.Helper()
	dsn := testkit.Postgres(t)
	w := world{nats: nats}
	migrate(t, dsn, w.nats)
	for range 2 {
		p := newProc(t, "edge", "--nats", w.nats, "--cors-origin", page)
		p.env = []string{"AGENTSTREAM_POSTGRES=" + dsn, "AGENTSTREAM_SHARE_SECRET=" + strings.Repeat("e", 40)}
		p.start()
		w.edges = append(w.edges, p)
	}
	w.postgres = dsn
	per := newProc(t, "persist", "--nats", w.nats)
	per.env = []string{"AGENTSTREAM_POSTGRES=" + dsn}
	per.start()
	return w
}

// plot is what is said in the run: much that is random, with the scenarios that are hard to carry in
// the middle of it. The last event is its end.
func plot(seed uint64) []schema.Event {
	random := schematest.Generate(60_000, seed).Events
	var hard []schema.Event
	for _, name := range []string{"unicode", "children", "hostile", "tool", "parallel-tools"} {
		for _, e := range schematest.ByName(name).Events {
			if e.Type != schema.TypeRunLifecycle || e.ChildID != "" {
				hard = append(hard, e)
			}
		}
	}
	const early = 1500
	return slices.Concat(random[:early], hard, random[early:])
}

// perform publishes: a part at once, then with pauses, until it has been enough, and then the end.
func perform(ctx context.Context, url string, all []schema.Event, started, enough chan struct{}) error {
	nc, err := natskit.Dial(url, "clients")
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := pubjs.Open(ctx, nc)
	if err != nil {
		return err
	}
	pub, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "default", Run: clientsRun}})
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := len(all) - 1
	for i, e := range all[:end] {
		if _, err := pub.Publish(ctx, e); err != nil {
			return err
		}
		switch {
		case i == 500:
			if err := pub.Flush(ctx); err != nil {
				return err
			}
			close(started)
		case i > 500 && i%8 == 0:
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-enough:
			}
			if i >= 3000 {
				if _, err := pub.Publish(ctx, all[end]); err != nil {
					return err
				}
				return pub.Close(ctx)
			}
		}
	}
	return fmt.Errorf("all %d events are told and it is still not enough", len(all))
}

func awaitCuts(ctx context.Context, t *testing.T, fewest func() int64, n int64, clients []*viewer) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; fewest() < n; <-tick.C {
		for _, c := range clients {
			if c.over.Load() || ctx.Err() != nil {
				t.Fatalf("%s ended, or time ran out (%v), when some client had been cut %d times only: %v\n%s", c.name,
					ctx.Err(), fewest(), c.err, tally(clients))
			}
		}
	}
}

func tally(clients []*viewer) string {
	var b bytes.Buffer
	for _, c := range clients {
		c.mu.Lock()
		fmt.Fprintf(&b, "%-36s %6d events %4d connections %4d cuts\n", c.name, len(c.got), c.proxy.conns.Load(),
			c.proxy.cuts.Load())
		c.mu.Unlock()
	}
	return b.String()
}

func (c *viewer) start(t *testing.T, seed uint64, w world) {
	if c.mean == 0 {
		c.mean = map[bool]int{true: 6000, false: 2000}[c.full]
	}
	header := ""
	if c.header {
		header = "Authorization: Bearer " + edgeToken + "\r\nConnection: close\r\n"
	}
	c.proxy = newCutter(t, seed, c.mean, header, w.edges[0].addr, w.edges[1].addr)
	c.proxy.stalls = c.stalls
}

// run lives as long as the client does.
func (c *viewer) run(ctx context.Context, node, chromium, page string) error {
	defer c.over.Store(true)
	if c.script == "" {
		return c.runGRPC(ctx)
	}
	profile, err := os.MkdirTemp(binDir, "profile") // Chromium may still write there when it is told to end
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, node, c.script)
	if strings.HasPrefix(c.script, "watch.py") {
		cmd = pythonScript(ctx, strings.Fields(c.script)...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if cmd.Dir == "" {
		cmd.Dir = jsDir
	}
	cmd.Env = append(os.Environ(), "STREAM="+c.proxy.url("/v1/agent/runs/"+clientsRun+"/stream"), "TOKEN="+edgeToken,
		"DETAIL="+map[bool]string{true: "full", false: "default"}[c.full], "PAGE="+page,
		"CHROMIUM="+chromium, "PROFILE="+profile)
	cmd.Env = append(cmd.Env, c.env...)
	said := &lockedBuffer{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	rerr := c.read(bufio.NewReaderSize(out, 1<<20))
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, tail(said.String(), 2000))
	}
	return rerr
}

// read takes a script's lines until it says that the run is over.
func (c *viewer) read(out *bufio.Reader) error {
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the script says no more: %w", err)
		}
		var r received
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%w: %.200s", err, line)
		}
		c.mu.Lock()
		if r.Over {
			c.stats = string(bytes.TrimSpace(line))
		} else {
			c.got = append(c.got, r)
		}
		c.mu.Unlock()
		if r.Over {
			return nil
		}
	}
}

// check compares what a client got with the log.
func (c *viewer) check(t *testing.T, log []string) {
	if c.err != nil {
		t.Fatalf("%v\n%s", c.err, c.stats)
	}
	if n := c.proxy.cuts.Load(); n < wantCuts() {
		t.Errorf("%d cuts", n)
	}
	t.Logf("%d events, %d connections, %d cuts, %d times to the dead edge; %s", len(c.got), c.proxy.conns.Load(),
		c.proxy.cuts.Load(), c.proxy.missed.Load(), c.stats)
	if c.full {
		c.checkFull(t, log)
		return
	}
	c.checkShaped(t, log)
}

func (c *viewer) checkFull(t *testing.T, log []string) {
	if c.hasty {
		log = c.without(t, log)
	}
	for i, r := range c.got {
		if r.Gap != nil {
			t.Fatalf("gap %s", r.Gap)
		}
		if i >= len(log) || r.Data != log[i] || r.ID != "" && !strings.Contains(r.Data, `,"seq":`+r.ID+`,`) {
			t.Fatalf("event %d: id %q\n got %.300s\nwant %.300s", i+1, r.ID, r.Data, log[min(i, len(log)-1)])
		}
	}
	if len(c.got) != len(log) {
		t.Fatalf("%d events of %d", len(c.got), len(log))
	}
}

// without leaves those events out of the log that a hasty client has lost by its own doing: a
// connection was cut between the line of the event's id and the empty line.
func (c *viewer) without(t *testing.T, log []string) (rest []string) {
	have := make(map[string]bool, len(c.got))
	for _, r := range c.got {
		have[r.ID] = true
	}
	for i, line := range log {
		if id := strconv.Itoa(i + 1); have[id] || !c.proxy.torn[id] {
			rest = append(rest, line)
			continue
		}
		t.Logf("event %d is lost to this client: cut between its id and the empty line", i+1)
	}
	return rest
}

var startSeq = regexp.MustCompile(`"start_seq":\d+,`)

// checkShaped: what is merged is explained by first_seq; what is not a delta is as it was; and the
// whole sums up to the same run.
func (c *viewer) checkShaped(t *testing.T, log []string) {
	var shaped, whole schema.Fold
	var controls []string
	first, last := schema.Seq(0), schema.Seq(0)
	for i, r := range c.got {
		if r.Gap != nil {
			t.Fatalf("gap %s", r.Gap)
		}
		rec, err := schema.ScanLine([]byte(r.Data))
		if err != nil {
			t.Fatalf("event %d: %v: %.300s", i, err, r.Data)
		}
		if rec.First() != last+1 && (rec.First() != first || rec.Seq != last) {
			// deltas that came together share their numbers
			t.Fatalf("behind %d comes %d to %d", last, rec.First(), rec.Seq)
		}
		first, last = rec.First(), rec.Seq
		shaped.AddRecord(rec)
		if !rec.IsDelta() {
			controls = append(controls, r.Data)
		}
	}
	for _, line := range log {
		rec, err := schema.ScanLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		whole.AddRecord(rec)
		if !rec.IsDelta() {
			if len(controls) == 0 || controls[0] != line {
				t.Fatalf("seq %d is not what the client got", rec.Seq)
			}
			controls = controls[1:]
		}
	}
	// Deltas that came together share their numbers: what begins with one of them, unannounced, begins with the first.
	a, b := startSeq.ReplaceAll(shaped.AppendSnapshot(nil), nil), startSeq.ReplaceAll(whole.AppendSnapshot(nil), nil)
	if !bytes.Equal(a, b) {
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		from := max(0, at-300)
		t.Fatalf("the sums differ at byte %d:\n got %.500s\nwant %.500s", at, a[from:], b[from:])
	}
	if len(c.got) >= len(log)*97/100 {
		t.Errorf("%d of %d events: nothing was merged", len(c.got), len(log))
	}
}
