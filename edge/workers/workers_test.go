package workers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/ends"
	"agentstream/edge/workers"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

const tenant = "acme"

// house is a log with workers, as two nodes have them.
type house struct {
	t        *testing.T
	log      *natsjs.Log
	appender *producers.Appender
	nodes    [2]*workers.Workers
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t}
	var err error
	if h.log, err = natsjs.Open(t.Context(), testkit.NATS(t).Conn); err != nil {
		t.Fatal(err)
	}
	if h.appender, err = producers.NewAppender(producers.AppenderConfig{Log: h.log}); err != nil {
		t.Fatal(err)
	}
	for i := range h.nodes {
		cfg := workers.Config{Worker: h.worker(), Follow: h.follow("work"), MaxSeats: 3, MaxPlaces: 8}
		if h.nodes[i], err = workers.New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *house) worker() worker.Config {
	return worker.Config{Log: h.log, Waker: h.log, Attend: h.log.Attend, Ask: h.log.Ask,
		Logger: slog.New(slog.NewTextHandler(h.t.Output(), nil))}
}

func (h *house) follow(name string) func(context.Context, string, func(schema.Pack, func())) error {
	return func(ctx context.Context, of string, hand func(schema.Pack, func())) error {
		return h.log.Follow(ctx, natsjs.FollowConfig{Name: name, Tenant: of, Again: time.Second}, hand)
	}
}

func (h *house) put(run, lease string, events ...schema.Event) error {
	for i := range events {
		if err := events[i].Prepare(run); err != nil {
			return err
		}
	}
	key := schema.RunKey{Tenant: tenant, Run: run}
	_, err := h.appender.Append(context.Background(), key, events, producers.AppendOptions{Owner: lease})
	return err
}

func event(typ, payload string) schema.Event {
	return schema.Event{Type: typ, Actor: "agent", Payload: json.RawMessage(payload)}
}

// say opens a session, or goes on with it.
func (h *house) say(run string, events ...schema.Event) {
	h.t.Helper()
	if err := h.put(run, "", append(events, event(schema.TypeCommandMessage, `{"content":"hello"}`))...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) open(run string) { h.say(run, event(schema.TypeSessionCreated, `{}`)) }

// task is a task as an agent reads it.
type task struct {
	Lease  string         `json:"lease"`
	Run    string         `json:"run_id"`
	Turn   string         `json:"turn_id"`
	Events []schema.Event `json:"events"`
}

// finish answers a task: the text, the mark and the end.
func (h *house) finish(k task, by string) error {
	text := event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, by))
	text.TurnID = k.Turn
	return h.put(k.Run, k.Lease, text,
		event(schema.TypeCommandsTaken, fmt.Sprintf(`{"through":%d}`, k.Events[len(k.Events)-1].Seq)),
		event(schema.TypeTurnEnd, fmt.Sprintf(`{"turn_id":%q,"stop_reason":"end_turn"}`, k.Turn)))
}

// next waits for a task.
func (h *house) next(s *workers.Seat) (k task) {
	h.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case frame := <-s.Frames():
			data, ok := bytes.CutPrefix(frame, []byte("event: task\ndata: "))
			if !ok {
				continue
			}
			if err := json.Unmarshal(data, &k); err != nil {
				h.t.Fatal(err)
			}
			return k
		case <-limit:
			h.t.Fatal("a task was awaited")
		}
	}
}

// agent answers until its seat is taken away.
func (h *house) agent(s *workers.Seat, by string, stop <-chan struct{}) {
	for {
		select {
		case frame := <-s.Frames():
			data, ok := bytes.CutPrefix(frame, []byte("event: task\ndata: "))
			var k task
			if !ok || json.Unmarshal(data, &k) != nil {
				continue
			}
			if err := h.finish(k, by); err != nil && !errors.Is(err, producers.ErrNotOwner) {
				h.t.Error(err)
			}
		case <-stop:
			return
		}
	}
}

// countStops returns how many turns of a run have ended, by their stop reason.
func (h *house) countStops(run string) map[string]int {
	h.t.Helper()
	n := map[string]int{}
	for p, err := range h.log.Since(h.t.Context(), schema.RunKey{Tenant: tenant, Run: run}, 0) {
		if err != nil {
			h.t.Fatal(err)
		}
		for r := range p.Records(0) {
			if string(r.Type) == schema.TypeTurnEnd {
				n[string(schema.Field(r.Payload(), "stop_reason"))]++
			}
		}
	}
	return n
}

func (h *house) await(run string, done func(map[string]int) bool) {
	h.t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(h.countStops(run)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%s: %v", run, h.countStops(run))
		}
	}
}

func (h *house) join(node, places int) *workers.Seat {
	h.t.Helper()
	s, err := h.nodes[node].Join(tenant, places)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(s.Leave)
	return s
}

// Agents at two nodes and a worker in Go, in a group of its own, answer what many sessions say: each message once,
// while an agent that has begun with some goes away.
func TestManyAnswer(t *testing.T) {
	h := newHouse(t)
	cfg := h.worker()
	cfg.Answer = func(_ context.Context, q *worker.Task) (string, error) {
		return "end_turn", q.Run.Emit(q.Turn.Context(), schema.TypeProgress, struct{}{})
	}
	inGo, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const sessions = 24
	lost := h.join(0, 4)
	for i := range sessions {
		h.open(fmt.Sprint("s", i))
	}
	held := []task{h.next(lost), h.next(lost)}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { h.agent(h.join(0, 3), "one", ctx.Done()) })
	group.Go(func() { h.agent(h.join(1, 3), "two", ctx.Done()) })
	group.Go(func() { _ = inGo.Run(ctx) })
	group.Go(func() { _ = h.follow("go")(ctx, tenant, inGo.Receive) })
	lost.Leave()
	for i := range sessions {
		h.await(fmt.Sprint("s", i), func(n map[string]int) bool { return n[`"end_turn"`] > 0 })
	}
	for i := range sessions {
		if n := h.countStops(fmt.Sprint("s", i)); n[`"end_turn"`] != 1 {
			t.Errorf("s%d: %v", i, n)
		}
	}
	for _, k := range held {
		if err := h.finish(k, "zombie"); !errors.Is(err, producers.ErrNotOwner) {
			t.Errorf("%s is answered under a lease that has ended: %v", k.Run, err)
		}
	}
}

// A seat has as many tasks as places. One that retires gets no more and keeps what it has; there are as many seats as a
// tenant may have.
func TestPlaces(t *testing.T) {
	h := newHouse(t)
	s := h.join(0, 1)
	h.open("s1")
	first := h.next(s)
	h.open("s2")
	if err := h.finish(first, "it"); err != nil {
		t.Fatal(err)
	}
	second := h.next(s)
	if first.Run == second.Run {
		t.Errorf("%s is answered twice", first.Run)
	}
	for _, places := range []int{8, 3} { // 8 are more than are left
		more, err := h.nodes[0].Join(tenant, places)
		if err == nil {
			more.Leave()
		}
		if refused := errors.Is(err, ends.ErrLimited); refused != (places == 8) {
			t.Errorf("%d places: %v", places, err)
		}
	}
	empty := s.Retire()
	select {
	case <-empty:
		t.Error("it has a task")
	default:
	}
	if err := h.finish(second, "it"); err != nil {
		t.Fatal(err)
	}
	<-empty
}
