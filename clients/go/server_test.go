package agentstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/native"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// memoryKeys remembers idempotency keys.
type memoryKeys struct {
	mu sync.Mutex
	m  map[string]producers.KeyRecord
}

func (k *memoryKeys) Begin(_ context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if have, ok := k.m[id]; ok {
		return have, false, nil
	}
	k.m[id] = r
	return r, true, nil
}

func (k *memoryKeys) Finish(_ context.Context, id string, r producers.KeyRecord) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[id] = r
	return nil
}

// realServer is the server itself over a log in memory, and its address.
func realServer(t *testing.T, change ...func(*edge.Config)) string {
	t.Helper()
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: &memoryKeys{m: map[string]producers.KeyRecord{}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := edge.Config{Hub: hub, Appender: app, Dialects: []dialect.Dialect{native.Dialect{}},
		DrainWindow: time.Millisecond, Retry: time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	go func() { hubbed <- hub.Run(hubCtx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("server: %v", err)
		}
		stopHub()
		if err := <-hubbed; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// tell stores a scenario as a producer would, and gives what it told.
func tell(t *testing.T, c *Client, run, scenario string) []schema.Event {
	t.Helper()
	events := schematest.Named(scenario).Events
	for part := range slices.Chunk(events, 300) {
		if _, err := c.Append(t.Context(), run, "", part...); err != nil {
			t.Fatalf("%s: %v", scenario, err)
		}
	}
	return events
}

// folded sums up a stream.
func folded(t *testing.T, f *schema.Fold, s *Stream) (events int) {
	t.Helper()
	defer s.Close()
	for e, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if err := Fold(f, &e); err != nil {
			t.Fatal(err)
		}
		events++
	}
	return events
}

// T1 (native §9): what a producer said comes out of a real server as it was said, over HTTP/1.1 and
// HTTP/2, and marshal, unmarshal, marshal changes no byte of it.
func TestT1RoundTripThroughAServer(t *testing.T) {
	url := realServer(t)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	clients := map[string]*Client{"HTTP/1.1": dial(t, url), "HTTP/2": dial(t, url, func(c *Config) { c.HTTPClient = &http.Client{Transport: h2} })}
	writer := clients["HTTP/1.1"]
	for _, sc := range schematest.All() {
		told := tell(t, writer, sc.Name, sc.Name)
		for proto, c := range clients {
			s := c.Watch(t.Context(), sc.Name, Options{Detail: DetailFull})
			n := 0
			for e, err := range s.All(t.Context()) {
				if err != nil {
					t.Fatalf("%s over %s: %v", sc.Name, proto, err)
				}
				first, err := e.MarshalJSON()
				if err != nil || !bytes.Equal(first, s.Line()) {
					t.Fatalf("%s over %s: %v, decoded and encoded\n%s\nis not what came\n%s", sc.Name, proto, err, first, s.Line())
				}
				var again schema.Event
				if err := again.UnmarshalJSON(first); err != nil {
					t.Fatal(err)
				}
				if second, _ := again.MarshalJSON(); !bytes.Equal(second, first) {
					t.Fatalf("%s over %s: the second time\n%s\nis not the first\n%s", sc.Name, proto, second, first)
				}
				want := told[n]
				if e.Seq != schema.Seq(n+1) || e.Type != want.Type || e.ChildID != want.ChildID || string(e.Extra) != string(want.Extra) ||
					string(e.Payload) != string(want.Payload) && len(want.Payload) > 0 {
					t.Fatalf("%s over %s: seq %d is %s, told was %+v", sc.Name, proto, e.Seq, s.Line(), want)
				}
				n++
			}
			if n != len(told) {
				t.Fatalf("%s over %s: %d events of %d", sc.Name, proto, n, len(told))
			}
		}
		i := 0
		for e, err := range writer.Export(t.Context(), sc.Name, 1, schema.Seq(len(told)-1)) {
			if i++; err != nil || e.Seq != schema.Seq(i+1) || e.Type != told[i].Type {
				t.Fatalf("%s exported: seq %d, %v", sc.Name, e.Seq, err)
			}
		}
		if i != len(told)-2 {
			t.Fatalf("%s: %d events exported of %d", sc.Name, i, len(told)-2)
		}
	}
}

// Folded and bundled detail are fewer events and the same sum, with nothing unexplained.
func TestViewsHaveTheSameSum(t *testing.T) {
	c := dial(t, realServer(t))
	for _, sc := range schematest.All() {
		tell(t, c, sc.Name, sc.Name)
		var full, fold, bundle schema.Fold
		all := folded(t, &full, c.Watch(t.Context(), sc.Name, Options{Detail: DetailFull}))
		few := folded(t, &fold, c.Watch(t.Context(), sc.Name, Options{}))
		least := folded(t, &bundle, c.Watch(t.Context(), sc.Name, Options{Bundle: true}))
		want := string(full.AppendSnapshot(nil))
		if got := string(fold.AppendSnapshot(nil)); got != want {
			t.Errorf("%s folded:\n%s\nwant\n%s", sc.Name, got, want)
		}
		if got := string(bundle.AppendSnapshot(nil)); got != want {
			t.Errorf("%s bundled:\n%s\nwant\n%s", sc.Name, got, want)
		}
		if few > all || least > few {
			t.Errorf("%s: %d events, %d folded, %d bundled", sc.Name, all, few, least)
		}
	}
}

// chopper stands between client and server and breaks every connection after a random number of
// bytes, inside of frames, headers and anything.
type chopper struct {
	ln   net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	rng  *rand.Rand
	cuts int
	most int // of cuts; then connections live
}

func newChopper(t *testing.T, to string, most int, seed uint64) *chopper {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &chopper{ln: ln, to: strings.TrimPrefix(to, "http://"), rng: rand.New(rand.NewPCG(seed, 1)), most: most}
	p.wg.Go(p.accept)
	t.Cleanup(func() { ln.Close(); p.wg.Wait() })
	return p
}

func (p *chopper) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.carry(c) })
	}
}

func (p *chopper) carry(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close()
	p.wg.Go(func() { io.Copy(s, c); s.Close(); c.Close() })
	p.mu.Lock()
	limit := int64(1) << 40
	if p.cuts < p.most {
		p.cuts++
		limit = p.rng.Int64N(4000)
	}
	p.mu.Unlock()
	io.CopyN(c, s, limit)
}

// Connections are cut at random byte counts while the run goes on; each watcher gets every event
// once, in order.
func TestWatchThroughAProxyThatCuts(t *testing.T) {
	url := realServer(t)
	writer := dial(t, url)
	const watchers, cuts = 4, 50
	events := schematest.Generate(1000, 7).Events
	if _, err := writer.Append(t.Context(), "r1", "", events[:50]...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			o, cuts := Options{Detail: DetailFull}, cuts
			if i%2 == 1 { // fewer bytes
				o.Detail, cuts = DetailFolded, cuts/2
			}
			p := newChopper(t, url, cuts, uint64(i))
			c := dial(t, "http://"+p.ln.Addr().String())
			s := c.Watch(t.Context(), "r1", o)
			defer s.Close()
			var f, want schema.Fold
			last := schema.Seq(0)
			for e, err := range s.All(t.Context()) {
				if err != nil || e.First() != last+1 {
					t.Errorf("watcher %d: seq %d from %d after %d: %v", i, e.Seq, e.First(), last, err)
					return
				}
				last = e.Seq
				if err := Fold(&f, &e); err != nil {
					t.Error(err)
				}
			}
			for _, err := range writer.Export(t.Context(), "r1", 0, 0) {
				if err != nil {
					t.Error(err)
				}
			}
			for e := range writer.Export(t.Context(), "r1", 0, 0) {
				want.Add(&e)
			}
			if got, want := f.AppendSnapshot(nil), want.AppendSnapshot(nil); !bytes.Equal(got, want) {
				t.Errorf("watcher %d has another sum:\n%s\nwant\n%s", i, got, want)
			}
			if x := s.Stats(); p.cuts < cuts || x.Duplicates+x.Gaps > 0 {
				t.Errorf("watcher %d: %d cuts, %+v", i, p.cuts, x)
			}
		})
	}
	for part := range slices.Chunk(events[50:], 5) {
		if _, err := writer.Append(t.Context(), "r1", "", part...); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// clock issues tokens that end soon, and takes them until then.
type clock struct {
	mu     sync.Mutex
	issued int
	until  map[string]time.Time
}

func (k *clock) issue(context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.issued++
	token := fmt.Sprintf("t%d", k.issued)
	k.until[token] = time.Now().Add(150 * time.Millisecond)
	return token, nil
}

func (k *clock) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.issued
}

func (k *clock) authenticate(r *http.Request) (auth.Caller, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	k.mu.Lock()
	defer k.mu.Unlock()
	until := k.until[token]
	if !time.Now().Before(until) {
		return auth.Caller{}, auth.ErrUnauthorized
	}
	return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll, Expires: until}, nil
}

// A stream outlives its credentials on a real server, and its writer as well.
func TestStreamsOutliveCredentials(t *testing.T) {
	k := &clock{until: map[string]time.Time{}}
	url := realServer(t, func(c *edge.Config) { c.Authenticate = k.authenticate })
	c := dial(t, url, func(c *Config) { c.TokenSource = k.issue })
	if _, err := c.Append(t.Context(), "r1", "", schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"0"}`)}); err != nil {
		t.Fatal(err)
	}
	s := c.Watch(t.Context(), "r1", Options{Detail: DetailFull})
	defer s.Close()
	ended := make(chan error, 1)
	go func() {
		last := schema.Seq(0)
		for e, err := range s.All(context.WithoutCancel(t.Context())) {
			if err != nil || e.Seq != last+1 {
				ended <- fmt.Errorf("seq %d after %d: %v", e.Seq, last, err)
				return
			}
			last = e.Seq
		}
		ended <- nil
	}()
	deadline := time.Now().Add(20 * time.Second)
	for k.count() < 5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d tokens", k.count())
		}
		if _, err := c.Append(t.Context(), "r1", "", schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"x"}`)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // between two events
	}
	if _, err := c.Append(t.Context(), "r1", "", schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(done)}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Connections; n < 3 {
		t.Errorf("%d connections for %d tokens", n, k.count())
	}
}
