package live_test

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// tally is a dialect whose frames depend on all records before: none, one or three of each, by a sum over the
// log. What it gets wrong by one record shows in every frame behind it.
type tally struct{}

func (tally) Info() dialect.Info { return dialect.Info{Name: "tally"} }
func (tally) Streams() []protocol.Stream {
	return []protocol.Stream{{Stream: dialect.Stream{Name: "tally", Pattern: "GET /tally/{run}", Transport: dialect.SSE,
		Mode: dialect.ModeD, Shared: true}}}
}

// tallying is the protocol with a route, whose path has a stream for those who ask for one.
func tallying(p protocol.Protocol) protocol.Protocol {
	p.Dialect, p.Streams = tally{}, append(tally{}.Streams(), protocol.Stream{Asked: protocol.IsStreamAccepted,
		Stream: dialect.Stream{Name: "tally.asked", Pattern: "GET /tallied/{run}", Transport: dialect.SSE,
			Mode: dialect.ModeD, Shared: true}})
	return p
}

func (tally) Open(in dialect.Input) (dialect.Request, error) {
	req := dialect.Request{Run: in.Path["run"], Stream: in.Stream, Form: in.Query.Get("form"),
		Newest: in.Query.Has("newest")}
	if id := in.Header.Get("Last-Event-ID"); id != "" {
		seq, _, _ := strings.Cut(id, ".")
		n, err := schema.ParseCursor(seq)
		if err != nil {
			return req, err
		}
		req.Cursor = dialect.Cursor{Seq: n, Token: id}
	}
	return req, nil
}

func (tally) Projector(req dialect.Request) dialect.Projector { return &tallyProjector{form: req.Form} }

func (tally) AppendError(dst []byte, p dialect.Problem) []byte {
	return fmt.Appendf(dst, `{"tally":%q}`, p.Code)
}

type tallyProjector struct {
	sum  uint32
	gone bool
	form string
}

func (p *tallyProjector) For(req dialect.Request) dialect.Stateful {
	q := *p
	q.form = req.Form
	return &q
}

func (p *tallyProjector) Size() int { return 32 }

func (p *tallyProjector) Admit(dialect.Request) error {
	if p.gone {
		return fmt.Errorf("tally: %w", dialect.ErrNotFound)
	}
	return nil
}

func (p *tallyProjector) Project(out *dialect.Frames, r schema.Record) error {
	p.sum = crc32.Update(p.sum, crc32.IEEETable, r.Line)
	p.gone = p.gone || string(r.Type) == schema.TypeSessionDeleted
	if out == nil {
		return nil
	}
	n := []int{0, 1, 1, 3}[p.sum%4]
	if p.form == "hidden" {
		n = 0
	}
	if p.gone {
		n = 1
	}
	for i := range n {
		token := fmt.Appendf(nil, "%d.%d.%08x", r.Seq, i, p.sum)
		out.Add(dialect.Frame{Event: []byte("tally"), Data: fmt.Appendf(nil, `{"at":"%s","form":%q}`, token, p.form),
			Token: token, Last: p.gone})
	}
	return nil
}

// follower reads a tally's stream frame by frame, and reconnects where it is told to.
type follower struct {
	t    *testing.T
	url  string
	rng  *rand.Rand
	last string // token of the last whole frame
	got  []string
}

var errCut = errors.New("the connection was cut")

// read takes whole frames until n are there; with cuts it breaks off somewhere, also inside a frame.
func (f *follower) read(n int, cut bool) error {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	if f.last != "" {
		r.Header.Set("Last-Event-ID", f.last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	var body io.Reader = resp.Body
	if cut {
		body = io.LimitReader(body, int64(f.rng.IntN(2000)))
	}
	lines := bufio.NewReader(body)
	token := ""
	for len(f.got) < n {
		line, err := lines.ReadString('\n')
		if err != nil {
			return errCut
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "id: "):
			token = line[4:]
		case line == "" && token != "":
			f.got, f.last, token = append(f.got, token), token, ""
		}
	}
	return nil
}

// TestStatefulFromEverywhere cuts many clients of a dialect with a state off at any byte, and lets them go on at
// another node behind the last whole frame, while the run is written, parked or not: each gets every frame once,
// those that a projector gives which has seen all.
func TestStatefulFromEverywhere(t *testing.T) {
	t.Parallel()
	speak := func(c *edge.Config) {
		c.Protocols = append(c.Protocols, tallying(protocol.Protocol{Routes: []protocol.Route{{Needs: auth.ScopeRead,
			Pattern: "GET /tallied/{run}"}}}))
		c.KeepAlive = 30 * time.Millisecond
	}
	h := edgetest.NewHouse(t, speak)
	other := edgetest.NewHouse(t, speak, func(c *edge.Config) { c.Hub = h.Hub })
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	const events, clients = 1200, 24
	for range events / 2 {
		w.progress()
	}
	var all sync.WaitGroup
	written := make(chan struct{})
	var full []string // once written is closed
	for i := range clients {
		f := &follower{t: t, rng: rand.New(rand.NewPCG(7, uint64(i)))}
		all.Go(func() {
			var want []string
			for cuts := 0; want == nil || len(f.got) < len(want); cuts++ {
				f.url = []string{h.URL, other.URL}[f.rng.IntN(2)] + "/tally/run"
				n := len(f.got) + 1 + f.rng.IntN(200)
				select {
				case <-written:
					want, n = full, len(full)
				default:
				}
				if err := f.read(n, cuts%3 > 0 && cuts < 40); err != nil && err != errCut { // its own
					t.Error(err)
					return
				}
			}
			if got := strings.Join(f.got[:len(want)], " "); got != strings.Join(want, " ") {
				t.Errorf("client %d got other frames: %d, want %d", i, len(f.got), len(want))
			}
		})
	}
	for i := range events / 2 {
		w.progress()
		if i%20 == 0 {
			time.Sleep(2 * time.Millisecond) // so that clients are parked now and then
		}
	}
	full = tallied(t, h, "run")
	close(written)
	for range 400 { // for those who still wait for more than there is
		w.progress()
	}
	all.Wait()
	if len(full) < events/2 {
		t.Errorf("only %d frames of %d events", len(full), events)
	}
}

// tallied returns the tokens of all frames of a run as it is now.
func tallied(t *testing.T, h *edgetest.House, run string) (list []string) {
	t.Helper()
	p := tally{}.Projector(dialect.Request{})
	var out dialect.Frames
	key := schema.RunKey{Tenant: "acme", Run: run}
	head, err := h.Log.Log.Head(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	for pack, err := range h.Hub.Packs(t.Context(), key, 0, head.Last) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range pack.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			_ = p.Project(&out, r)
			for _, f := range out.List {
				list = append(list, string(f.Token))
			}
			out.Reset()
		}
	}
	return list
}

// TestStatefulParked shows that those who have everything are parked at one projector for each form, and get the
// same as those who are not, and that a stream which shows nothing of a busy run is kept alive.
func TestStatefulParked(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = append(c.Protocols, edgetest.Speak(tally{})...)
		c.KeepAlive = 50 * time.Millisecond
	})
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	for range 40 {
		w.progress()
	}
	var wg sync.WaitGroup
	done := make([]*follower, 20)
	ready := make(chan int)
	for i := range done {
		f := &follower{t: t, url: h.URL + "/tally/run?form=" + strconv.Itoa(i%2)}
		done[i] = f
		wg.Go(func() {
			n := <-ready
			if err := f.read(n, false); err != nil {
				t.Error(err)
			}
		})
	}
	hidden := openRaw(t, h, "/tally/run?form=hidden")
	for range 100 {
		w.progress()
	}
	want := tallied(t, h, "run")
	for range done {
		ready <- len(want) - 3
	}
	wg.Wait()
	for i, f := range done {
		if got := strings.Join(f.got, " "); got != strings.Join(want[:len(want)-3], " ") {
			t.Errorf("client %d got other frames", i)
		}
	}
	settle(h, 1)
	for range 60 { // something comes all the time, and nothing of it is shown
		w.progress()
		time.Sleep(3 * time.Millisecond)
	}
	if n := strings.Count(hidden(), ": "); n < 2 {
		t.Errorf("a silent stream of a busy run had %d signs of life", n)
	}
}

// openRaw opens a stream and collects what comes until it is asked for it.
func openRaw(t *testing.T, h *edgetest.House, path string) func() string {
	t.Helper()
	resp, err := http.Get(h.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	var got edgetest.SyncBuffer
	over := make(chan struct{})
	go func() { defer close(over); _, _ = io.Copy(&got, resp.Body) }()
	return func() string { resp.Body.Close(); <-over; return got.String() }
}

// TestStatefulEnds shows that the last frame ends all streams cleanly, parked or not, and that the door is shut
// behind it; that a token which is none of the run's is refused before the stream begins; and who is given a
// stream on a path that answers otherwise.
func TestStatefulEnds(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = append(c.Protocols, tallying(protocol.Protocol{RequestID: "Request-Id",
			Below: []string{"/tallied"}, Routes: []protocol.Route{{
				Needs: auth.ScopeRead, Pattern: "GET /tallied/{run}", Serve: answerTally,
			}}}))
	})
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	for range 30 {
		w.progress()
	}
	want := tallied(t, h, "run")
	for _, bad := range []string{"1.0.00000000", "999.0.00000000", strings.Replace(want[3], ".", ".9", 1)} {
		if a := h.Do("GET", "/tally/run", "", "Last-Event-ID", bad); a.Status != 400 ||
			a.Body != `{"tally":"BAD-CURSOR"}`+"\n" {
			t.Errorf("token %s: %d %s", bad, a.Status, a.Body)
		}
	}
	if a := h.Do("GET", "/tally/nothing", ""); a.Status != 404 || a.Header.Get("Request-Id") == "" {
		t.Errorf("a run that is not there: %d", a.Status)
	}
	if a := h.Do("GET", "/tallied/run", "", "Accept", "application/json, */*"); a.Body != `"answered"`+"\n" {
		t.Errorf("who takes anything got %q", a.Body)
	}
	if a := h.Do("PUT", "/tallied/run", ""); a.Status != 405 || a.Header.Get("Allow") != "GET, HEAD" ||
		a.Body != `{"tally":"METHOD-NOT-ALLOWED"}`+"\n" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
	if a := h.Do("GET", "/tallied/a/b", ""); a.Status != 404 || a.Body != `{"tally":"NOT-FOUND"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	var wg sync.WaitGroup
	ends := make(chan string, 12)
	for i := range 12 {
		path, accept := "/tally/run?form="+strconv.Itoa(i%3), "*/*"
		if i%2 == 0 {
			path, accept = "/tallied/run", "text/event-stream; q=1"
		}
		wg.Go(func() {
			a := h.Do("GET", path, "", "Accept", accept)
			ends <- a.Body
		})
	}
	settle(h, 12)
	w.add(schema.Event{Type: schema.TypeSessionDeleted})
	wg.Wait()
	close(ends)
	last := tallied(t, h, "run")
	for body := range ends {
		if !strings.Contains(body, last[len(last)-1]) || strings.Count(body, "id: ") != len(last) {
			t.Errorf("a stream ended with %q", body[max(0, len(body)-200):])
		}
	}
	if a := h.Do("GET", "/tally/run", ""); a.Status != 404 {
		t.Errorf("behind the end: %d", a.Status)
	}
}

func answerTally(x *protocol.Call) error {
	x.Reply(http.StatusOK, []byte(`"answered"`))
	return nil
}

// TestTracks reads a long run from many places, with marks and without, and a run of the same name that took the
// place of a deleted one.
func TestTracks(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = []protocol.Protocol{tallying(protocol.Protocol{Routes: []protocol.Route{{
			Needs: auth.ScopeRead, Pattern: "GET /tallied/{run}",
			Serve: func(x *protocol.Call) error {
				ctx := x.Request.Context()
				q, err := x.Query()
				if err != nil {
					return err
				}
				n, _ := strconv.Atoi(url.Values(q).Get("at"))
				p, err := x.At(ctx, x.Path("run"), schema.Seq(n), dialect.Request{})
				if err != nil {
					return err
				}
				x.Reply(http.StatusOK, fmt.Appendf(nil, "%08x", p.(*tallyProjector).sum))
				return nil
			},
		}}})}
	})
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	const events = 6000
	batch := make([]schema.Event, events)
	for i := range batch {
		batch[i] = schema.Event{Type: schema.TypeProgress, RunID: "run", Payload: fmt.Appendf(nil, `{"done":%d}`, i)}
	}
	if _, err := h.Appender.Append(t.Context(), key, batch, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	sums := sumsOf(t, h.Hub, key, events)
	rng := rand.New(rand.NewPCG(3, 3))
	var wg sync.WaitGroup
	for range 200 {
		n := 1 + rng.IntN(events)
		wg.Go(func() {
			if a := h.Do("GET", "/tallied/run?at="+strconv.Itoa(n), ""); a.Body != sums[n]+"\n" {
				t.Errorf("at %d: %d %s, want %s", n, a.Status, a.Body, sums[n])
			}
		})
	}
	wg.Wait()
	for _, n := range []int{0, events, 1} {
		if a := h.Do("GET", "/tallied/run?at="+strconv.Itoa(n), ""); a.Body != sums[n]+"\n" {
			t.Errorf("at %d: %s, want %s", n, a.Body, sums[n])
		}
	}
}

// sumsOf returns the sum after each record.
func sumsOf(t *testing.T, hub *fanout.Hub, key schema.RunKey, through schema.Seq) []string {
	t.Helper()
	sums := []string{"00000000"}
	sum := uint32(0)
	for pack, err := range hub.Packs(t.Context(), key, 0, through) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range pack.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			sum = crc32.Update(sum, crc32.IEEETable, r.Line)
			sums = append(sums, fmt.Sprintf("%08x", sum))
		}
	}
	return sums
}
