package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/producers"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// till stores posts, and may be told to wait or to refuse.
type till struct {
	mu    sync.Mutex
	runs  map[string][]string
	packs map[string]int
	hold  map[string]chan struct{}      // runs whose appends wait
	no    map[string]*producers.Refusal // by body
	held  atomic.Int64                  // appends that wait
}

func newTill() *till {
	return &till{runs: map[string][]string{}, packs: map[string]int{}, hold: map[string]chan struct{}{},
		no: map[string]*producers.Refusal{}}
}

func (d *till) store(_ context.Context, _ *Client, key schema.RunKey, posts []producers.Post, _ bool,
	answers []producers.Answer) []producers.Answer {
	d.mu.Lock()
	gate := d.hold[key.Run]
	d.mu.Unlock()
	if gate != nil {
		d.held.Add(1)
		<-gate
		d.held.Add(-1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.packs[key.Run]++
	for i := range posts {
		text := string(posts[i].Body)
		if no := d.no[text]; no != nil {
			answers = append(answers, producers.Answer{Refusal: no})
			continue
		}
		d.runs[key.Run] = append(d.runs[key.Run], text)
		n := schema.Seq(len(d.runs[key.Run]))
		answers = append(answers, producers.Answer{First: n, Last: n, Events: 1})
	}
	return answers
}

func (d *till) config() Config {
	return Config{Store: d.store, Has: func(context.Context, schema.RunKey, schema.Seq, string) bool { return false },
		Refuse: func(err error) *producers.Refusal {
			return &producers.Refusal{Status: 400, Code: "BAD", Message: err.Error()}
		}}
}

// reader takes what is delivered.
type reader struct {
	mu    sync.Mutex
	text  bytes.Buffer
	fails error
	more  chan struct{} // one token for each delivery; nil: none
}

func (r *reader) deliver(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(b)
	if r.more != nil {
		r.more <- struct{}{}
	}
	return r.fails
}

// room counts memory.
type room struct{ held, most atomic.Int64 }

func (r *room) Reserve(_ context.Context, n int64) error {
	r.most.Store(max(r.most.Load(), r.held.Add(n)))
	return nil
}
func (r *room) Try(n int64) error { return r.Reserve(nil, n) }
func (r *room) Give(n int64)      { r.held.Add(-n) }

// full has no memory, ever.
type full struct{}

func (full) Reserve(context.Context, int64) error { return errors.New("no room") }
func (full) Try(int64) error                      { return errors.New("no room") }
func (full) Give(int64)                           {}

// TestNoMemory: a stream without any memory stores one line after the other from where they are, each once and in
// order.
func TestNoMemory(t *testing.T) {
	d, r := newTill(), &reader{}
	client := Client{Caller: auth.Caller{Tenant: "acme"}, Memory: full{}, Deliver: r.deliver}
	s := New(t.Context(), d.config().WithDefaults(), client)
	var want []string
	for i := range 100 {
		want = append(want, line("run", i)+strings.Repeat(" ", i*100))
		b := []byte(want[i] + "\n")
		if err := s.Feed(b); err != nil {
			t.Fatal(err)
		}
		clear(b)
	}
	if err := s.FinishWith(nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.runs["run"], "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%d lines are stored: %.300s", len(d.runs["run"]), got)
	}
	if n := strings.Count(r.text.String(), `"first_seq"`); n == 0 {
		t.Errorf("answered with %s", r.text.String())
	}
}

func line(run string, n int) string { return fmt.Sprintf(`{"run_id":%q,"n":%d}`, run, n) }

// TestAnyPieces: however bytes come, each line is stored once and in its run's order, and answered once.
func TestAnyPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		d, r, m := newTill(), &reader{}, &room{}
		s := New(t.Context(), d.config().WithDefaults(),
			Client{Caller: auth.Caller{Tenant: "acme"}, Memory: m, Deliver: r.deliver})
		var text strings.Builder
		want := map[string][]string{}
		var lines []string
		for i := range 1 + rnd.IntN(3000) {
			run := fmt.Sprint("r", rnd.IntN(40))
			l := line(run, i)
			if rnd.IntN(50) == 0 {
				l += strings.Repeat(" ", rnd.IntN(100<<10))
			}
			if rnd.IntN(30) == 0 {
				lines = append(lines, "")
				text.WriteString("\r\n")
			}
			lines = append(lines, l)
			text.WriteString(l + "\n")
			want[run] = append(want[run], l)
		}
		for b := []byte(text.String()); len(b) > 0; {
			n := min(len(b), 1+rnd.IntN(20<<10))
			if err := s.Feed(b[:n:n]); err != nil {
				t.Fatal(err)
			}
			clear(b[:n])
			b = b[n:]
		}
		if err := s.FinishWith(nil); err != nil {
			t.Fatal(err)
		}
		answered := map[string]int{}
		for text := range strings.Lines(r.text.String()) {
			var a struct {
				Line  int
				Run   string `json:"run_id"`
				First int    `json:"first_seq"`
				Last  int    `json:"last_seq"`
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil || a.First != answered[a.Run]+1 ||
				lines[a.Line-1] != want[a.Run][a.Last-1] {
				t.Fatalf("%v: %s", err, text)
			}
			answered[a.Run] = a.Last
		}
		for run, list := range want {
			if answered[run] != len(list) || strings.Join(d.runs[run], "\n") != strings.Join(list, "\n") {
				t.Fatalf("%s: %d answered, %d stored of %d", run, answered[run], len(d.runs[run]), len(list))
			}
		}
		if m.held.Load() != 0 || m.most.Load() == 0 {
			t.Fatalf("%d bytes are still held, at most %d were", m.held.Load(), m.most.Load())
		}
	}
}

// TestReceiptsJoin: a receipt waits for those of lines that are under way, for a millisecond at most, and for nothing
// when there are none.
func TestReceiptsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r := newTill(), &reader{}
		a, b := make(chan struct{}), make(chan struct{})
		d.hold = map[string]chan struct{}{"a": a, "b": b}
		s := New(t.Context(), d.config().WithDefaults(),
			Client{Caller: auth.Caller{Tenant: "acme"}, Memory: &room{}, Deliver: r.deliver})
		delivered := func(want int) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if n := strings.Count(r.text.String(), "\n"); n != want {
				t.Errorf("%d receipts are delivered, expected %d", n, want)
			}
		}
		feed := func(runs ...string) {
			for i, run := range runs {
				if err := s.Message([]byte(line(run, i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		feed("c")
		delivered(1)
		feed("a", "b", "c")
		delivered(1)
		time.Sleep(joining - time.Microsecond)
		delivered(1)
		time.Sleep(time.Microsecond)
		delivered(2)
		a <- struct{}{}
		delivered(2)
		close(b)
		delivered(4)
		close(a)
		if err := s.Finish(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lingering) // the workers end
	})
}

// TestSlowRun: a run that is not answered holds no other up, what comes for it meanwhile is one pack, and the window
// ends the reading.
func TestSlowRun(t *testing.T) {
	d, r := newTill(), &reader{more: make(chan struct{}, 1000)}
	gate := make(chan struct{})
	d.hold["slow"] = gate
	cfg := d.config()
	cfg.MaxLines = 100
	s := New(t.Context(), cfg.WithDefaults(), Client{Deliver: r.deliver})
	feed := func(l string) {
		if err := s.Feed([]byte(l + "\n")); err != nil {
			t.Error(err)
		}
	}
	feed(line("slow", 0))
	for i := 1; i < 90; i++ {
		feed(line("slow", i))
		if i%10 == 0 {
			feed(line("other", i))
			<-r.more // it is answered while the slow run is not
		}
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		for i := 90; i < 200; i++ {
			feed(line("slow", i))
		}
	}()
	for unanswered := 0; unanswered < 100; { // as many as the window takes
		s.mu.Lock()
		unanswered = s.lines
		s.mu.Unlock()
	}
	select {
	case <-waits:
		t.Error("it is read beyond the window")
	default:
	}
	close(gate)
	<-waits
	if err := s.FinishWith(nil); err != nil || len(d.runs["slow"]) != 200 || len(d.runs["other"]) != 8 {
		t.Errorf("%v: %d and %d stored", err, len(d.runs["slow"]), len(d.runs["other"]))
	}
	if d.packs["slow"] > 102 || d.packs["slow"] < 2 {
		t.Errorf("%d packs", d.packs["slow"])
	}
}

// TestGone: of a client that has left, what was not begun is not stored, and a reader that waits goes on.
func TestGone(t *testing.T) {
	d, r := newTill(), &reader{}
	gate := make(chan struct{})
	d.hold["a"] = gate
	cfg := d.config()
	cfg.MaxLines = 3
	m := &room{}
	s := New(t.Context(), cfg.WithDefaults(), Client{Memory: m, Deliver: r.deliver})
	fed := make(chan error)
	go func() { fed <- s.Feed([]byte(strings.Repeat(line("a", 1)+"\n", 10))) }()
	for d.held.Load() == 0 {
	}
	gone := fmt.Errorf("test: %w", dialect.ErrClientGone)
	s.Drop(gone)
	if err := <-fed; !errors.Is(err, gone) {
		t.Error(err)
	}
	close(gate)
	if err := s.FinishWith(gone); !errors.Is(err, gone) {
		t.Error(err)
	}
	if n := len(d.runs["a"]); n == 0 || n > 3 || m.held.Load() != 0 || r.text.Len() != 0 {
		t.Errorf("%d stored, %d bytes held, %q", n, m.held.Load(), &r.text)
	}
	// One that does not take its answers is the same.
	d, r = newTill(), &reader{fails: dialect.ErrSlowClient}
	s = New(t.Context(), d.config().WithDefaults(), Client{Deliver: r.deliver})
	var err error
	for err == nil {
		err = s.Feed([]byte(line("a", 1) + "\n"))
	}
	if end := s.FinishWith(err); !errors.Is(err, dialect.ErrSlowClient) || !errors.Is(end, dialect.ErrSlowClient) {
		t.Error(err, end)
	}
}

// TestTroubleOfARun: behind a refusal that may pass, nothing of the run is stored.
func TestTroubleOfARun(t *testing.T) {
	d, r := newTill(), &reader{}
	d.no[line("a", 1)] = &producers.Refusal{Status: 503, Code: "UNAVAILABLE", Message: "m", Retry: 2}
	d.no[line("b", 1)] = &producers.Refusal{Status: 409, Code: "RUN-ENDED", Message: "m"}
	s := New(t.Context(), d.config().WithDefaults(), Client{Deliver: r.deliver, KeepAlive: 1, Sign: []byte("\n")})
	for i := range 4 {
		if err := s.Message([]byte(line("a", i) + "\n" + line("b", i))); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		for s.lines > 0 {
			s.change.Wait()
		}
		s.mu.Unlock()
	}
	if err := s.FinishWith(errors.New("bye")); err != nil {
		t.Fatal(err)
	}
	if len(d.runs["a"]) != 1 || len(d.runs["b"]) != 3 {
		t.Errorf("%q", d.runs)
	}
	text := r.text.String()
	if strings.Count(text, `"UNAVAILABLE"`) != 3 || strings.Count(text, `"RUN-ENDED"`) != 1 ||
		!strings.HasSuffix(strings.TrimSpace(text), `{"error":{"code":"BAD","message":"bye","status":400}}`) {
		t.Errorf("%s", text)
	}
}

func BenchmarkStream(b *testing.B) {
	d := newTill()
	cfg := d.config()
	cfg.Store = func(_ context.Context, _ *Client, _ schema.RunKey, posts []producers.Post, _ bool, answers []producers.Answer) []producers.Answer {
		for i := range posts {
			answers = append(answers, producers.Answer{First: schema.Seq(i + 1), Last: schema.Seq(i + 1), Events: 1})
		}
		return answers
	}
	s := New(b.Context(), cfg.WithDefaults(), Client{Deliver: func([]byte) error { return nil }})
	var text []byte
	for i := range 100 {
		text = append(text, fmt.Sprintf(`{"run_id":"run_%d","type":"text.delta","payload":{"text":%q}}`+"\n", i%64,
			strings.Repeat("word ", 36))...)
	}
	b.SetBytes(int64(len(text) / 100))
	b.ReportAllocs()
	for i := 0; i < b.N; i += 100 {
		if err := s.Feed(text); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.FinishWith(nil); err != nil {
		b.Fatal(err)
	}
}
