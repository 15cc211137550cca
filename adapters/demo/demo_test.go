package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server's own, for the whole process.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// recorder is a sink that keeps what it is given. fail, when set, decides on each event.
type recorder struct {
	events  []schema.Event
	times   []time.Time
	flushes []int // number of events at each flush
	fail    func(n int) error
}

func (r *recorder) Send(ctx context.Context, events ...schema.Event) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.fail != nil {
		if err := r.fail(len(r.events)); err != nil {
			return err
		}
	}
	for _, e := range events {
		if err := e.Prepare("run_demo"); err != nil {
			return err
		}
		e.Payload = bytes.Clone(e.Payload)
		r.events = append(r.events, e)
		r.times = append(r.times, time.Now())
	}
	return nil
}

func (r *recorder) Flush(ctx context.Context) error {
	r.flushes = append(r.flushes, len(r.events))
	return ctx.Err()
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
		if err := providertest.CheckPayload(&e); err != nil {
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
	if !head.State.Final() {
		t.Fatalf("the run is left in state %s", head.State)
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

var update = flag.Bool("update", false, "write the golden files")

// story writes events one to a line, what a block says in pieces as one.
func story(events []schema.Event) string {
	var b strings.Builder
	last := ""
	for _, e := range events {
		who := e.ChildID
		if who == "" {
			who = "-"
		}
		before, text, after, ok := schema.SplitText(e.Payload)
		if ok && strings.HasSuffix(e.Type, ".delta") {
			key := fmt.Sprintf("%s %s %s…%s", who, e.Type, before, after)
			if key != last {
				b.WriteString("\n" + key + "\n    ")
			} else {
				b.WriteString("·")
			}
			b.Write(text)
			last = key
			continue
		}
		last = ""
		fmt.Fprintf(&b, "\n%s %s %s", who, e.Type, e.Payload)
		if e.TurnID == "" && !strings.HasPrefix(e.Type, "command") {
			b.WriteString(" (no turn)")
		}
	}
	return b.String()[1:] + "\n"
}

func golden(t *testing.T, name string, events []schema.Event) {
	t.Helper()
	file, got := filepath.Join("testdata", name+".txt"), story(events)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%s line %d (go test -update writes it)\n got %s\nwant %s", file, i+1, g[i], w[i])
		}
	}
	t.Fatalf("%s has %d lines, the story %d", file, len(w), len(g))
}

// TestScripts: every script is what its golden file says, each time, and leaves nothing open.
func TestScripts(t *testing.T) {
	for _, name := range Scripts() {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Script: name, PlanningGate: gatePreview}
			r, err := run(t, t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, r.events)
			f := check(t, r.events)
			want := schema.StateDone
			if name == "failure" {
				want = schema.StateError
			}
			if f.State != want {
				t.Errorf("state %s", f.State)
			}
			again, err := run(t, t.Context(), cfg)
			if err != nil || !reflect.DeepEqual(r.events, again.events) {
				t.Errorf("two runs differ, %v", err)
			}
			a, err := New(Config{Script: name, PlanningGate: gatePreview, Sink: r})
			if err != nil {
				t.Fatal(err)
			}
			var children []string
			for _, c := range f.Children {
				children = append(children, c.ID)
			}
			if !reflect.DeepEqual(children, a.Children()) {
				t.Errorf("children %v, announced %v", children, a.Children())
			}
		})
	}
}

// TestTour: everything there is to see is in the tour.
func TestTour(t *testing.T) {
	r, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := check(t, r.events)
	var roles []string
	for _, m := range f.Messages {
		roles = append(roles, strings.TrimPrefix(m.Child, "run_demo")+"/"+m.Role+"/"+m.StopReason)
	}
	want := []string{"/user/", "/assistant/end_turn", "/assistant/tool_use", "/assistant/tool_use",
		"_review/assistant/end_turn",
		"_costs/assistant/tool_use", "_costs/assistant/end_turn", "/assistant/end_turn"}
	if !reflect.DeepEqual(roles, want) {
		t.Errorf("messages %v", roles)
	}
	if got := f.Text("", "text"); !strings.Contains(got, "**Take the log.**") ||
		!strings.Contains(got, "| log | 150,000 |") {
		t.Errorf("answer %q", got)
	}
	calls := map[string]string{}
	for _, c := range f.Calls {
		calls[c.ID] = string(c.Input)
		delegated := c.Tool == "delegate"
		if !c.OK || (c.Stream.Len() == 0) != delegated || len(c.Output) < 5 {
			t.Errorf("call %s: ok %v, stream %q, output %s", c.ID, c.OK, c.Stream.String(), c.Output)
		}
	}
	if len(calls) != 7 || calls["call_log"] != `{"design":"log","writers":4,"readers":1000,"seconds":3}` {
		t.Errorf("calls %v", calls)
	}
	if f.Plan == nil || f.Plan.Gate != "preview" {
		t.Errorf("plan %+v", f.Plan)
	}
	kinds, signed, image := "", 0, ""
	for _, e := range r.events {
		var p struct {
			StepIndex int    `json:"step_index"`
			StepKind  string `json:"step_kind"`
			Signature string `json:"signature"`
			MediaType string `json:"media_type"`
			Data      []byte `json:"data"`
		}
		_ = json.Unmarshal(e.Payload, &p)
		if e.Type == schema.TypeStepBoundary && e.ChildID == "" {
			kinds += fmt.Sprintf("%d %s, ", p.StepIndex, p.StepKind)
		}
		if p.Signature != "" {
			signed++
		}
		if e.Type == schema.TypeDataDelta {
			image += p.MediaType + string(p.Data)
		}
	}
	if kinds != "0 plan, 1 tool-roundtrip, 2 fan-out, 3 fan-in, 4 done, " || signed != 4 {
		t.Errorf("steps %s, %d signed thoughts", kinds, signed)
	}
	svg, ok := strings.CutPrefix(image, "image/svg+xml")
	if err := xml.Unmarshal([]byte(svg), new(struct{})); !ok || err != nil || strings.Count(svg, "<rect") != 3 {
		t.Errorf("image %s, %v", image, err)
	}
}

// TestContentIsWhatWasSaid: message.end carries the words of the deltas, and counts them.
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
	read := map[string]int{}
	for _, e := range r.events {
		var p struct {
			MessageID string `json:"message_id"`
			Usage     *usage
			Content   []struct {
				Type, Text, Thinking string
				Input                json.RawMessage
			}
		}
		if e.Type != schema.TypeMessageEnd || json.Unmarshal(e.Payload, &p) != nil {
			continue
		}
		pieces := 0
		for i, c := range p.Content {
			if got := byID[p.MessageID].Blocks[i].Text.String(); c.Type != "image" && got != c.Text+c.Thinking+string(c.Input) {
				t.Errorf("%s block %d: %q, content %q %q %s", p.MessageID, i, got, c.Text, c.Thinking, c.Input)
			}
			pieces += len(words(c.Text+c.Thinking)) + (len(c.Input)+4)/5
		}
		if p.Usage == nil { // of the person
			continue
		}
		if p.Usage.Output != pieces || p.Usage.Input <= 0 || p.Usage.Cached != read[e.ChildID] {
			t.Errorf("%s: usage %+v, %d pieces, %d read before", p.MessageID, *p.Usage, pieces, read[e.ChildID])
		}
		read[e.ChildID] += p.Usage.Input
	}
}

// TestPace: how long each script takes at natural speed, that nothing stands still for long, and that
// speed changes the pace and not the story.
func TestPace(t *testing.T) {
	for script, about := range map[string]time.Duration{"tour": 24 * time.Second, "plan": 7 * time.Second,
		"failure": 4 * time.Second, "quick": 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Script: script, PlanningGate: gatePreview, Speed: 1}
			began := time.Now()
			natural, err := run(t, t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if took < about*3/4 || took > about*5/4 {
				t.Errorf("%s takes %v", script, took)
			}
			for i := 1; i < len(natural.times); i++ {
				if gap := natural.times[i].Sub(natural.times[i-1]); gap > time.Second {
					t.Errorf("%s: nothing for %v before event %d", script, gap, i)
				}
			}
			began, cfg.Speed = time.Now(), 4
			fast, err := run(t, t.Context(), cfg)
			if err != nil || !reflect.DeepEqual(fast.events, natural.events) {
				t.Fatalf("%s: four times as fast it is another story, %v", script, err)
			}
			if quarter := time.Since(began); quarter < took/4-time.Second || quarter > took/4+time.Second {
				t.Errorf("%s: four times the speed takes %v of %v", script, quarter, took)
			}
			began, cfg.Speed = time.Now(), 0
			if _, err := run(t, t.Context(), cfg); err != nil || time.Since(began) != 0 {
				t.Errorf("speed 0 takes %v, %v", time.Since(began), err)
			}
			t.Logf("%s: %d events in %v", script, len(natural.events), took)
		})
	}
}

// TestChildrenInterleave: the two children and three tools are at work at the same time, and what others
// stand on is stored before they go on.
func TestChildrenInterleave(t *testing.T) {
	r, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	changes, last := 0, ""
	at := map[string]int{}
	for i, e := range r.events {
		if e.ChildID != last {
			changes++
			last = e.ChildID
		}
		if want := []string{"run_demo", e.ChildID}; e.ChildID != "" && !reflect.DeepEqual(e.Path, want) {
			t.Errorf("path %v", e.Path)
		}
		if e.Type == schema.TypeRunLifecycle && e.ChildID != "" {
			l, err := schema.ParseLifecycle(e.Payload)
			if err != nil {
				t.Fatal(err)
			}
			at[e.ChildID+" "+string(l.State)] = i
			if l.State == schema.StateDone && !slices.Contains(r.flushes, i+1) {
				t.Errorf("the end of %s was not flushed", e.ChildID)
			}
			if l.State == schema.StateRunning && !slices.Contains(r.flushes, i) {
				t.Errorf("the announcement of %s was not flushed before it spoke", e.ChildID)
			}
		}
	}
	if changes < 30 {
		t.Errorf("the lanes change %d times", changes)
	}
	if at["run_demo_costs running"] > at["run_demo_review done"] ||
		at["run_demo_review running"] > at["run_demo_costs done"] {
		t.Errorf("the children work one after the other: %v", at)
	}
	if r.flushes[len(r.flushes)-1] != len(r.events) {
		t.Error("the end was not flushed")
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

// TestStuckSink: a log that takes nothing is waited for, and left after Grace when the run is to end.
func TestStuckSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Sink: stuck{}, Grace: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour+3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

type stuck struct{}

func (stuck) Send(ctx context.Context, _ ...schema.Event) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
func (stuck) Flush(ctx context.Context) error { return nil }

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no sink": {}, "speed": {Sink: stuck{}, Speed: -1}, "run id": {Sink: stuck{}, RunID: "a.b"},
		"script": {Sink: stuck{}, Script: "x"},
		"gate":   {Sink: stuck{}, PlanningGate: "x"}, "deaf": {Sink: stuck{}, PlanningGate: gateRequired},
		"deaf script": {Sink: stuck{}, Script: "plan"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	a, err := New(Config{Sink: stuck{}, RunID: strings.Repeat("r", schema.MaxRunID)})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range a.Children() {
		if schema.ValidRunID(id) != nil {
			t.Errorf("child of a long run id: %q", id)
		}
	}
}
