package agentstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/producers"
	"agentstream/schema"
)

// delta returns a piece of text as an event.
func delta(text string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":%q}`, text)}
}

// texts returns the texts of a run's deltas, in order.
func texts(t *testing.T, c *Client, run string) (all []string) {
	t.Helper()
	for e, err := range c.Run(run).Export(t.Context(), 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == schema.TypeTextDelta {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(string(e.Payload), `{"text":"`), `"}`))
		}
	}
	return all
}

// sequence returns the numbers from 0 as texts.
func sequence(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// flush waits for a Sink's events, for a minute at most.
func flush(t *testing.T, s *Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSinkStoresOnce cuts requests before the server has read them and after it has stored them.
func TestSinkStoresOnce(t *testing.T) {
	for name, broken := range map[string]func(int64) int{
		"whole":            func(int64) int { return 0 },
		"cut before":       func(n int64) int { return int(n % 2) },
		"cut after":        func(n int64) int { return int(n%2) * 2 },
		"both, many times": func(n int64) int { return int(n % 5 % 3) },
	} {
		t.Run(name, func(t *testing.T) {
			at, _ := counted(t, realServer(t), false, broken)
			c := dial(t, at)
			s := c.Run("r1").Sink(SinkConfig{BatchEvents: 7})
			for _, text := range sequence(50) {
				if err := s.Send(t.Context(), delta(text)); err != nil {
					t.Fatal(err)
				}
			}
			flush(t, s)
			if got := texts(t, c, "r1"); !slices.Equal(got, sequence(50)) {
				t.Errorf("stored %v", got)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSinkWritesWhatAPublisherWrites runs one agent over both, with random sizes and cut answers: the types,
// lanes and payloads are the same.
func TestSinkWritesWhatAPublisherWrites(t *testing.T) {
	for seed := range uint64(6) {
		at, _ := counted(t, realServer(t), false, func(n int64) int { return int((n + int64(seed)) % 4) })
		c := dial(t, at)
		direct := c.Run("direct").Sink(SinkConfig{})
		batched := c.Run("batched").Sink(SinkConfig{BatchEvents: 1 + int(seed), BatchBytes: 300, BufferBytes: 2000})
		perform(t, direct, "direct", seed, true)
		perform(t, batched, "batched", seed, false)
		if a, b := story(t, c, "direct"), story(t, c, "batched"); !slices.Equal(a, b) || len(a) < 20 {
			t.Errorf("seed %d:\n%s\n---\n%s", seed, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	}
}

// perform plays an agent of a seed. With each, every call is stored before the next.
func perform(t *testing.T, sink *Sink, id string, seed uint64, each bool) {
	t.Helper()
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 1))
	n := 0
	run, err := producers.NewRun(producers.RunConfig{Sink: sink, RunID: id,
		NewID: func(word string) string { n++; return fmt.Sprint(word, "_", n) },
		Now:   func() time.Time { return time.Time{} }})
	if err != nil {
		t.Fatal(err)
	}
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if each {
			flush(t, sink)
		}
	}
	try(run.State(ctx, schema.StateRunning, ""))
	child, err := run.Spawn(ctx, "child_"+id, "help", "")
	try(err)
	for _, lane := range []*producers.Lane{child, &run.Lane, &run.Lane} {
		turn, err := lane.Turn(ctx)
		try(err)
		m, err := turn.Message(producers.MessageInfo{Model: "m"})
		try(err)
		for range random.IntN(20) {
			try(m.Text(strings.Repeat("é", random.IntN(200))))
		}
		try(m.End("end_turn", nil))
		try(turn.End("end_turn"))
		if lane == child {
			try(child.Finish(ctx))
		}
	}
	try(run.Finish(ctx))
	if err := sink.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// story returns what a run's events say, without what the server fills in.
func story(t *testing.T, c *Client, id string) (all []string) {
	t.Helper()
	for e, err := range c.Run(id).Export(t.Context(), 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.ReplaceAll(fmt.Sprint(e.Type, " ", e.ChildID, " ", e.TurnID, " ", string(e.Payload)),
			id, "ID"))
	}
	return all
}

// TestSinkSharesRequests holds the first answer back: what is sent meanwhile goes with few requests, each with a
// key of its own, and a repeated request has the key that it had.
func TestSinkSharesRequests(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	bodies := map[string][]string{}
	var keys []string
	cl := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		again := bodies[key] != nil
		bodies[key] = append(bodies[key], string(body))
		keys = append(keys, key)
		first := len(keys) == 1
		mu.Unlock()
		if first {
			close(entered)
			<-release
		}
		if !again {
			return nil, errors.New("cut")
		}
		return answer(200, `{"first_seq":1,"last_seq":1}`, nil), nil
	})
	receipts := 0
	s := cl.Run("r1").Sink(SinkConfig{BatchEvents: 10, Stored: func(Receipt) { receipts++ }})
	for i := range 25 {
		if err := s.Send(t.Context(), delta(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-entered
		}
	}
	close(release)
	flush(t, s)
	if len(bodies) != 4 || len(keys) != 8 || receipts != 4 {
		t.Fatalf("%d keys in %d requests, %d receipts", len(bodies), len(keys), receipts)
	}
	for key, sent := range bodies {
		if key == "" || len(sent) != 2 || sent[0] != sent[1] {
			t.Errorf("key %q: %q", key, sent)
		}
	}
}

func TestSinkRefusals(t *testing.T) {
	c := dial(t, realServer(t, func(*edge.Config) {}))
	s := c.Run("r1").Sink(SinkConfig{})
	for name, tt := range map[string]struct {
		event schema.Event
		want  error
	}{
		"type":    {schema.Event{Type: "nonsense"}, schema.ErrUnknownType},
		"payload": {schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":`)}, schema.ErrMalformed},
		"size":    {delta(strings.Repeat("x", schema.MaxEventBytes)), schema.ErrTooLarge},
		"run": {schema.Event{Type: schema.TypeTextDelta, RunID: "r2", Payload: []byte(`{"text":"x"}`)},
			schema.ErrForeignRun},
		"child": {schema.Event{Type: schema.TypeTextDelta, ChildID: "a b", Payload: []byte(`{"text":"x"}`)},
			schema.ErrBadID},
	} {
		if err := s.Send(t.Context(), delta("no"), tt.event); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Send(t.Context(), delta("yes"),
		schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if got := texts(t, c, "r1"); !slices.Equal(got, []string{"yes"}) {
		t.Errorf("stored %v", got)
	}

	_ = s.Send(t.Context(), delta("late")) // accepted, and refused by the server
	err := s.Flush(t.Context())
	lost := new(LostError)
	if !errors.As(err, &lost) || lost.Events != 1 || !errors.Is(err, ErrEnded) || !errors.Is(err, schema.ErrEnded) {
		t.Errorf("flush after the end: %v", err)
	}
	for what, err := range map[string]error{"send": s.Send(t.Context(), delta("later")), "close": s.Close(t.Context())} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("%s after a refusal: %v", what, err)
		}
	}
	if err := c.Run("a b").Sink(SinkConfig{}).Send(t.Context(), delta("x")); err != nil &&
		!errors.Is(err, schema.ErrBadID) {
		t.Errorf("a bad run id: %v", err)
	}
}

// TestSinkWaitsForSpace holds the server back: a Send that finds the buffer full waits as long as its context, and
// Close with an ended context gives up what is not stored.
func TestSinkWaitsForSpace(t *testing.T) {
	var requests atomic.Int64
	cl := client(t, Config{}, func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	s := cl.Run("r1").Sink(SinkConfig{BufferBytes: 150})
	if err := s.Send(t.Context(), delta(strings.Repeat("x", 1000))); err != nil {
		t.Fatal(err) // larger than the buffer, which is empty
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	time.AfterFunc(5*time.Millisecond, func() { cancel(cause) })
	if err := s.Send(ended, delta("y")); !errors.Is(err, cause) {
		t.Errorf("send to a full buffer: %v", err)
	}
	if err := s.Flush(ended); !errors.Is(err, cause) {
		t.Errorf("flush: %v", err)
	}
	lost := new(LostError)
	if err := s.Close(ended); !errors.As(err, &lost) || lost.Events != 1 {
		t.Errorf("close: %v", err)
	}
	if err := s.Send(t.Context(), delta("z")); err == nil {
		t.Error("a closed sink accepts events")
	}
	idle := cl.Run("r1").Sink(SinkConfig{})
	if err := idle.Close(ended); err != nil {
		t.Errorf("close an idle sink: %v", err)
	}
	if err := idle.Send(t.Context(), delta("z")); !errors.Is(err, ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
}

// TestSinkGivesUp ends a Sink whose server stays away.
func TestSinkGivesUp(t *testing.T) {
	cl := client(t, Config{GiveUp: time.Millisecond},
		func(*http.Request) (*http.Response, error) { return nil, errors.New("away") })
	s := cl.Run("r1").Sink(SinkConfig{})
	_ = s.Send(t.Context(), delta("x"), delta("y"))
	lost := new(LostError)
	if err := s.Flush(t.Context()); !errors.As(err, &lost) || lost.Events != 2 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	_ = s.Close(t.Context())
}

// TestSinkOfManyGoroutines keeps the order of each.
func TestSinkOfManyGoroutines(t *testing.T) {
	c := dial(t, realServer(t))
	s := c.Run("r1").Sink(SinkConfig{BufferBytes: 1000, BatchEvents: 5})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if err := s.Send(t.Context(), delta(fmt.Sprintf("%d-%02d", g, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	got := texts(t, c, "r1")
	for _, text := range got {
		g, i, _ := strings.Cut(text, "-")
		if i <= last[g] {
			t.Errorf("%s after %s", text, last[g])
		}
		last[g] = i
	}
	if len(got) != 160 {
		t.Errorf("%d events", len(got))
	}
}
