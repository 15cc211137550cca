package agentstream

import (
	"bytes"
	"context"
	"errors"
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
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// chopper stands between client and server and breaks every connection after a random number of
// bytes, inside of frames, headers and anything.
type chopper struct {
	ln   net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	rng  *rand.Rand
	cuts int
	most int   // of cuts; then connections live
	size int64 // most bytes of a connection that is cut
}

func newChopper(t *testing.T, to string, most int, size int64, seed uint64) *chopper {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &chopper{ln: ln, to: strings.TrimPrefix(to, "http://"), rng: rand.New(rand.NewPCG(seed, 1)), most: most,
		size: size}
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
		limit = p.rng.Int64N(p.size)
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
	if _, err := writer.Run("r1").Append(t.Context(), "", events[:50]...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			o, cuts := Options{Detail: DetailFull}, cuts
			if i%2 == 1 { // fewer bytes
				o.Detail, cuts = DetailFolded, cuts/2
			}
			p := newChopper(t, url, cuts, 4000, uint64(i))
			c := dial(t, "http://"+p.ln.Addr().String())
			s := c.Run("r1").Watch(t.Context(), o)
			defer s.Close()
			var f, want schema.Fold
			last := schema.Seq(0)
			for e, err := range s.All(t.Context()) {
				if err != nil || e.First() != last+1 {
					t.Errorf("watcher %d: seq %d from %d after %d: %v", i, e.Seq, e.First(), last, err)
					return
				}
				last = s.Cursor() // deltas that came together share their numbers
				if err := Fold(&f, &e); err != nil {
					t.Error(err)
				}
			}
			for _, err := range writer.Run("r1").Export(t.Context(), 0, 0) {
				if err != nil {
					t.Error(err)
				}
			}
			for e := range writer.Run("r1").Export(t.Context(), 0, 0) {
				want.Add(&e)
			}
			if got, want := f.AppendSnapshot(nil), want.AppendSnapshot(nil); !bytes.Equal(got, want) {
				t.Errorf("watcher %d has another sum:\n%s\nwant\n%s", i, got, want)
			}
			p.mu.Lock()
			done := p.cuts
			p.mu.Unlock()
			if x := s.Stats(); done < cuts || x.Duplicates+x.Gaps > 0 {
				t.Errorf("watcher %d: %d cuts, %+v", i, done, x)
			}
		})
	}
	for part := range slices.Chunk(events[50:], 5) {
		if _, err := writer.Run("r1").Append(t.Context(), "", part...); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// An export that is cut at random goes on where it was, compressed or not.
func TestExportThroughAProxyThatCuts(t *testing.T) {
	url := realServer(t)
	events := schematest.Generate(2000, 9).Events
	writer := dial(t, url)
	for part := range slices.Chunk(events, 500) {
		if _, err := writer.Run("r1").Append(t.Context(), "", part...); err != nil {
			t.Fatal(err)
		}
	}
	for _, plain := range []bool{false, true} {
		size := int64(4000)
		if plain {
			size = 60_000
		}
		p := newChopper(t, url, 30, size, 3)
		tr := &http.Transport{DisableCompression: plain}
		c := dial(t, "http://"+p.ln.Addr().String(), func(c *Config) { c.HTTPClient = &http.Client{Transport: tr} })
		n, retries := 0, 0
		c.cfg.Hooks.Retrying = func(error, time.Duration) { retries++ }
		for e, err := range c.Run("r1").Export(t.Context(), 0, 0) {
			if n++; err != nil || e.Seq != schema.Seq(n) || e.Type != events[n-1].Type {
				t.Fatalf("plain=%v: seq %d, %v", plain, e.Seq, err)
			}
		}
		if n != len(events) || retries < 3 {
			t.Errorf("plain=%v: %d events, %d cuts that were felt", plain, n, retries)
		}
		for range c.Run("r1").Export(t.Context(), 5, 900) { // whoever has enough leaves
			break
		}
	}
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
	if _, err := c.Run("r1").Append(t.Context(), "",
		schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"0"}`)}); err != nil {
		t.Fatal(err)
	}
	s := c.Run("r1").Watch(t.Context(), Options{Detail: DetailFull})
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
		if _, err := c.Run("r1").Append(t.Context(), "",
			schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"x"}`)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // between two events
	}
	if _, err := c.Run("r1").Append(t.Context(), "",
		schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(done)}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Connections; n < 3 {
		t.Errorf("%d connections for %d tokens", n, k.count())
	}
}

// A ticket opens one stream, once, without a header.
func TestTicketsOpenOneStream(t *testing.T) {
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(time.Now),
		Still: func(auth.Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	url := realServer(t, func(c *edge.Config) { c.Tickets = tickets })
	c := dial(t, url)
	tell(t, c, "r1", "plain")
	ticket, err := c.Run("r1").Ticket(t.Context())
	if err != nil || ticket.Ticket == "" {
		t.Fatalf("%+v, %v", ticket, err)
	}
	if until, err := time.Parse(time.RFC3339, ticket.ExpiresAt); err != nil || time.Until(until) <= 0 ||
		time.Until(until) > time.Minute {
		t.Errorf("expires at %q: %v", ticket.ExpiresAt, err)
	}
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		resp, err := http.Get(url + "/v1/agent/runs/r1/stream?ticket=" + ticket.Ticket)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := c.Run("nobody").Ticket(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("for nothing: %v", err)
	}
}
