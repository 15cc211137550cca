package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a sink that keeps what it is given. fail, when set, decides on each call.
type recorder struct {
	events  []schema.Event
	times   []time.Time
	flushes []int // number of events at each flush
	fail    func(n int) error
}

func (r *recorder) Publish(ctx context.Context, events ...schema.Event) error {
	if _, limited := ctx.Deadline(); !limited || ctx.Err() != nil {
		return fmt.Errorf("context with deadline %v, %w", limited, ctx.Err())
	}
	if r.fail != nil {
		if err := r.fail(len(r.events)); err != nil {
			return err
		}
	}
	r.events = append(r.events, events...)
	r.times = append(r.times, time.Now())
	return nil
}

func (r *recorder) Flush(context.Context) error {
	r.flushes = append(r.flushes, len(r.events))
	return nil
}

func run(t *testing.T, ctx context.Context, cfg Config) (*recorder, error) {
	t.Helper()
	r := &recorder{}
	cfg.Sink = r
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, a.Run(ctx)
}

// check holds the events to what the log takes and gives their fold.
func check(t *testing.T, events []schema.Event) *schema.Fold {
	t.Helper()
	var fold schema.Fold
	var head schema.Head
	spawned := map[string]bool{"": true}
	for i := range events {
		e := events[i]
		if err := e.CheckNew("run_demo"); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if err := validate(t, &e); err != nil {
			t.Fatalf("event %d, %s: %v\n%s", i, e.Type, err, e.Payload)
		}
		if !spawned[e.ChildID] {
			t.Fatalf("event %d: child %s speaks before it was announced", i, e.ChildID)
		}
		if e.Type == schema.TypeChildSpawn {
			var p struct {
				ChildID string `json:"child_id"`
			}
			_ = json.Unmarshal(e.Payload, &p)
			spawned[p.ChildID] = true
		}
		if err := head.Advance(e.Type, e.ChildID, "evt", e.Payload); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		e.Seq = head.Last
		fold.Add(&e)
	}
	if !head.State.Final() || len(head.Anchors) != 0 {
		t.Fatalf("the run is left in state %s with anchors %v", head.State, head.Anchors)
	}
	for _, m := range fold.Messages {
		if m.End == 0 {
			t.Errorf("message %s of %q is open", m.ID, m.Child)
		}
	}
	for _, c := range fold.Calls {
		if !c.Done {
			t.Errorf("call %s has no end", c.ID)
		}
	}
	return &fold
}

// compiled are the schemas by type; the tests run one after the other.
var compiled = map[string]*jsonschema.Schema{}

func validate(t *testing.T, e *schema.Event) error {
	t.Helper()
	if compiled[e.Type] == nil {
		compiled[e.Type] = compile(t, e)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(e.Payload)))
	if err != nil {
		return err
	}
	return compiled[e.Type].Validate(doc)
}

func compile(t *testing.T, e *schema.Event) *jsonschema.Schema {
	t.Helper()
	info, err := schema.Lookup(e.Type)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(info.Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s", doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("s")
}

func TestStory(t *testing.T) {
	r, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := check(t, r.events)
	if f.State != schema.StateDone {
		t.Errorf("state %s", f.State)
	}
	if len(f.Children) != 1 || f.Children[0].ID != "run_demo_review" || f.Children[0].State != schema.StateDone {
		t.Errorf("children %v", f.Children)
	}
	var roles []string
	for _, m := range f.Messages {
		roles = append(roles, m.Child+"/"+m.Role+"/"+m.StopReason)
		if m.Usage == nil {
			t.Errorf("message %s has no usage", m.ID)
		}
	}
	want := []string{"/user/end_turn", "/assistant/end_turn", "/assistant/tool_use", "/assistant/tool_use", "run_demo_review/assistant/end_turn", "/assistant/end_turn"}
	if !reflect.DeepEqual(roles, want) {
		t.Errorf("messages %v", roles)
	}
	if got := f.Text("", "text"); !strings.Contains(got, "**Take the log.**") || !strings.Contains(got, "| log | 150,000 |") || !strings.HasSuffix(got, "typing.\n") {
		t.Errorf("answer %q", got)
	}
	if got := f.Text("run_demo_review", "text"); !strings.HasPrefix(got, "Ring: whoever") || !strings.HasSuffix(got, "still the next.") {
		t.Errorf("review %q", got)
	}
	calls := map[string]string{}
	for _, c := range f.Calls {
		calls[c.ID] = string(c.Input)
		if !c.OK || c.Stream.Len() == 0 || len(c.Output) < 5 {
			t.Errorf("call %s: ok %v, stream %q, output %s", c.ID, c.OK, c.Stream.String(), c.Output)
		}
	}
	if len(calls) != 4 || calls["call_log"] != `{"design":"log","writers":4,"readers":1000,"seconds":3}` {
		t.Errorf("calls %v", calls)
	}
	if f.Plan == nil || f.Plan.Gate != "preview" {
		t.Errorf("plan %+v", f.Plan)
	}
	kinds := ""
	for _, e := range r.events {
		if e.Type == schema.TypeStepBoundary && e.ChildID == "" {
			var p struct {
				StepIndex int    `json:"step_index"`
				StepKind  string `json:"step_kind"`
			}
			_ = json.Unmarshal(e.Payload, &p)
			kinds += fmt.Sprintf("%d %s, ", p.StepIndex, p.StepKind)
		}
	}
	if kinds != "0 plan, 1 tool-roundtrip, 2 fan-out, 3 fan-in, 4 done, " {
		t.Errorf("steps %s", kinds)
	}
}

// TestContentIsWhatWasSaid: message.end carries the words of the deltas.
func TestContentIsWhatWasSaid(t *testing.T) {
	r, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := check(t, r.events)
	byID := map[string]*schema.FoldMessage{}
	for _, m := range f.Messages {
		byID[m.ID] = m
	}
	for _, e := range r.events {
		var p struct {
			MessageID string `json:"message_id"`
			Content   []struct {
				Type, Text string
				Input      json.RawMessage
			}
		}
		if e.Type != schema.TypeMessageEnd || json.Unmarshal(e.Payload, &p) != nil {
			continue
		}
		for i, c := range p.Content {
			if got := byID[p.MessageID].Blocks[i].Text.String(); got != c.Text+string(c.Input) {
				t.Errorf("%s block %d: %q, content %q %s", p.MessageID, i, got, c.Text, c.Input)
			}
		}
	}
}

// TestDeterministic: the same words each time.
func TestDeterministic(t *testing.T) {
	fixed := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	a, err := run(t, t.Context(), Config{Now: fixed})
	if err != nil {
		t.Fatal(err)
	}
	b, err := run(t, t.Context(), Config{Now: fixed})
	if err != nil || !reflect.DeepEqual(a.events, b.events) {
		t.Errorf("two runs differ, %v", err)
	}
	if a.events[0].TS != "2026-01-02T03:04:05.000Z" {
		t.Errorf("ts %s", a.events[0].TS)
	}
}

// TestPace: natural speed takes 25 to 40 seconds, nothing stands still for long, and each word comes
// at its time. Speed changes the pace and not the story.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		natural, err := run(t, t.Context(), Config{Speed: 1})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if took < 25*time.Second || took > 40*time.Second {
			t.Errorf("a run takes %v", took)
		}
		for i := 1; i < len(natural.times); i++ {
			if gap := natural.times[i].Sub(natural.times[i-1]); gap > time.Second {
				t.Errorf("nothing for %v before event %d", gap, i)
			}
			if natural.events[i].TS < natural.events[i-1].TS {
				t.Errorf("event %d is older than the one before", i)
			}
		}
		began = time.Now()
		fast, err := run(t, t.Context(), Config{Speed: 4})
		if err != nil || len(fast.events) != len(natural.events) {
			t.Fatalf("%d events, %v", len(fast.events), err)
		}
		if quarter := time.Since(began); quarter < took/4-time.Second || quarter > took/4+time.Second {
			t.Errorf("four times the speed takes %v of %v", quarter, took)
		}
		began = time.Now()
		if _, err := run(t, t.Context(), Config{}); err != nil || time.Since(began) != 0 {
			t.Errorf("speed 0 takes %v, %v", time.Since(began), err)
		}
		t.Logf("%d events in %v", len(natural.events), took)
	})
}

// TestChildInterleaves: child and tools speak by turns, and the child's lane is whole in itself.
func TestChildInterleaves(t *testing.T) {
	r, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	changes, last := 0, ""
	for _, e := range r.events {
		if e.ChildID != last {
			changes++
			last = e.ChildID
		}
		if want := []string{"run_demo", "run_demo_review"}; e.ChildID != "" && !reflect.DeepEqual(e.Path, want) {
			t.Errorf("path %v", e.Path)
		}
	}
	if changes < 20 {
		t.Errorf("the lanes change %d times", changes)
	}
	// What another lane stands on is flushed before it: the announcement, and the child's end.
	for i, e := range r.events {
		if i > 0 && e.Type == schema.TypeRunLifecycle && e.ChildID != "" && r.events[i-1].Type == schema.TypeChildSpawn && !contains(r.flushes, i) {
			t.Error("the announcement was not flushed before the child spoke")
		}
		if e.Type == schema.TypeRunLifecycle && e.ChildID != "" && strings.Contains(string(e.Payload), "done") && !contains(r.flushes, i+1) {
			t.Error("the child's end was not flushed")
		}
	}
	if r.flushes[len(r.flushes)-1] != len(r.events) {
		t.Error("the end was not flushed")
	}
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// TestCancelAnywhere cancels the run after each of its events: it always ends as aborted, with all
// that was open closed, the child before the parent.
func TestCancelAnywhere(t *testing.T) {
	whole, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the user has seen enough")
	for n := range len(whole.events) - 1 {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &recorder{}
		r.fail = func(have int) error {
			if have == n {
				cancel(cause)
			}
			return nil
		}
		a, err := New(Config{Sink: r})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(ctx)
		if err == nil { // cancelled behind the last pause: the story is over
			if f := check(t, r.events); f.State != schema.StateDone || len(whole.events)-n > 20 {
				t.Fatalf("cancelled at %d of %d: not noticed", n, len(whole.events))
			}
			continue
		}
		if !errors.Is(err, cause) {
			t.Fatalf("cancelled at %d: %v", n, err)
		}
		f := check(t, r.events)
		if f.State != schema.StateAborted || f.Reason != cause.Error() {
			t.Fatalf("cancelled at %d: state %s, reason %q", n, f.State, f.Reason)
		}
		end := r.events[len(r.events)-1]
		if end.Type != schema.TypeRunLifecycle || end.ChildID != "" || r.flushes[len(r.flushes)-1] != len(r.events) {
			t.Fatalf("cancelled at %d: last is %s of %q", n, end.Type, end.ChildID)
		}
	}
}

// TestCancelInTime: a wait does not hold the end up.
func TestCancelInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		r, err := run(t, ctx, Config{Speed: 1})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if f := check(t, r.events); f.State != schema.StateAborted {
			t.Errorf("state %s", f.State)
		}
	})
}

// TestSinkFails: its error comes back, and nothing more is told.
func TestSinkFails(t *testing.T) {
	gone := errors.New("log is unavailable")
	for _, at := range []int{0, 1, 40, 300} {
		r := &recorder{fail: func(n int) error {
			if n >= at {
				return gone
			}
			return nil
		}}
		a, err := New(Config{Sink: r})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context()); !errors.Is(err, gone) || len(r.events) != at {
			t.Errorf("at %d: %v after %d events", at, err, len(r.events))
		}
	}
}

// TestStuckSink: a sink that never answers is left after Grace, also while the run is being ended.
func TestStuckSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Sink: stuck{}, Grace: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := a.Run(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

type stuck struct{}

func (stuck) Publish(ctx context.Context, _ ...schema.Event) error {
	<-ctx.Done()
	return ctx.Err()
}
func (stuck) Flush(ctx context.Context) error { return nil }

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no sink": {}, "speed": {Sink: stuck{}, Speed: -1}, "run id": {Sink: stuck{}, RunID: "a.b"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	a, err := New(Config{Sink: stuck{}, RunID: strings.Repeat("r", schema.MaxRunID)})
	if err != nil || schema.ValidRunID(a.ChildID()) != nil {
		t.Errorf("child of a long run id: %q %v", a.ChildID(), err)
	}
}
