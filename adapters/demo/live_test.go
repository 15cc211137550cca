package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// live is one run on a real log: an agent, the reader that hands it its commands, and somebody else who
// gives them.
type live struct {
	log      *natsjs.Log
	key      schema.RunKey
	pub      *producers.Publisher
	appender *producers.Appender
	commands chan schema.Event
	stop     context.CancelCauseFunc
	done     chan error

	mu    sync.Mutex
	seen  schema.Seq
	state schema.RunState
	kids  map[string]bool
	more  chan struct{} // closed when something was seen
}

// start runs a script under the run id that the golden stories have; the tenant tells runs apart.
func start(t *testing.T, log *natsjs.Log, tenant string, cfg Config) *live {
	t.Helper()
	l := &live{log: log, key: schema.RunKey{Tenant: tenant, Run: "run_demo"}, commands: make(chan schema.Event),
		done: make(chan error, 2),
		kids: map[string]bool{}, more: make(chan struct{})}
	var err error
	if l.pub, err = producers.New(producers.Config{Log: log, Key: l.key}); err != nil {
		t.Fatal(err)
	}
	if l.appender, err = producers.NewAppender(producers.AppenderConfig{Log: log}); err != nil {
		t.Fatal(err)
	}
	cfg.Sink, cfg.Commands = l.pub, l.commands
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	l.stop = stop
	reading, end := context.WithCancel(t.Context())
	go func() {
		err := a.Run(ctx)
		end()
		l.done <- err
	}()
	go l.read(reading)
	return l
}

// read hands on what is in the log.
func (l *live) read(ctx context.Context) {
	defer close(l.commands)
	after := uint64(0)
	for ctx.Err() == nil {
		for p, err := range l.log.Since(ctx, l.key, after) {
			if err != nil {
				break // again
			}
			after = p.Head.Stored
			for r := range p.Records(0) {
				e, err := r.Event()
				if err == nil && strings.HasPrefix(e.Type, "command.") {
					select {
					case l.commands <- e:
					case <-ctx.Done():
					}
				}
			}
			l.saw(&p)
		}
		time.Sleep(2 * time.Millisecond) // many runs at once ask one server
	}
}

func (l *live) saw(p *schema.Pack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.state = p.Last(), p.Head.State
	if p.Child != "" {
		l.kids[p.Child] = true
	}
	close(l.more)
	l.more = make(chan struct{})
}

// until waits for something to be seen, for a while.
func (l *live) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		yes, more := ok(), l.more
		l.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-more:
		case err := <-l.done:
			l.done <- err
			return
		case <-limit:
			t.Errorf("%s: not seen: %s; %d events, %s", l.key, what, l.seen, l.state)
			return
		}
	}
}

func (l *live) order(t *testing.T, name, child string) error {
	_, err := l.appender.Append(t.Context(), l.key,
		[]schema.Event{{Type: "command." + name, ChildID: child, Actor: "user", Payload: json.RawMessage(`{}`)}},
		producers.AppendOptions{})
	return err
}

// ended lets the agent go and gives what is in the log.
func (l *live) ended(t *testing.T) (events []schema.Event, err error) {
	t.Helper()
	l.stop(errGone)
	select {
	case err = <-l.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: the agent does not stop", l.key)
	}
	for range l.commands { // until its reader has gone
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, l.pub.Close(ctx))
	next := schema.Seq(1)
	for p, err := range l.log.Since(ctx, l.key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil || r.Seq != next {
				t.Fatalf("%s: event %d where %d is next, %v", l.key, r.Seq, next, err)
			}
			next++
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events, err
}

// listened tells a script with ears that hear nothing.
func listened(t *testing.T, script string) []schema.Event {
	t.Helper()
	commands := make(chan schema.Event)
	r := &ender{commands: commands}
	a, err := New(Config{Script: script, PlanningGate: gatePreview, Sink: r, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.events
}

// ender is a recorder that ends the commands with the run.
type ender struct {
	recorder
	commands chan schema.Event
}

func (r *ender) Send(ctx context.Context, events ...schema.Event) error {
	for _, e := range events {
		if l, err := schema.ParseLifecycle(e.Payload); e.Type == schema.TypeRunLifecycle && e.ChildID == "" &&
			err == nil && l.State.Final() {
			close(r.commands)
		}
	}
	return r.recorder.Send(ctx, events...)
}

// shots is how many runs a test makes.
func shots(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// eachLive runs n runs, of which the first has that number, some at a time, on one log.
func eachLive(t *testing.T, first, n int, do func(t *testing.T, log *natsjs.Log, i int, rnd *rand.Rand)) {
	t.Helper()
	k := testkit.NATS(t)
	log, err := natsjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	work := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range work {
				do(t, log, i, rand.New(rand.NewPCG(uint64(i), 5)))
			}
		})
	}
	for i := range n {
		work <- first + i
	}
	close(work)
	all.Wait()
}

// TestCancelLive cancels agents at random points of their stories, by a command in the log or by their
// context, once or twice: what is in the log then is always one of the allowed sequences.
func TestCancelLive(t *testing.T) {
	whole := map[string][]schema.Event{}
	for _, s := range Scripts() {
		whole[s] = listened(t, s)
	}
	took := map[string]time.Duration{"tour": 23 * time.Second, "plan": 7 * time.Second, "failure": 4 * time.Second,
		"quick": 2 * time.Second}
	var mu sync.Mutex
	ends, points := map[string]int{}, map[string]bool{}
	once := func(t *testing.T, log *natsjs.Log, i int, rnd *rand.Rand) {
		script := []string{"tour", "tour", "tour", "tour", "tour", "plan", "failure", "quick"}[rnd.IntN(8)]
		speed := []float64{30, 100, 300}[rnd.IntN(3)]
		l := start(t, log, fmt.Sprintf("cancel%d", i), Config{Script: script, PlanningGate: gatePreview, Speed: speed})
		at := schema.Seq(1 + rnd.IntN(len(whole[script])))
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.Float64() * float64(took[script]) / speed))
		} else {
			l.until(t, "event", func() bool { return l.seen >= at || l.state.Final() })
		}
		how := []string{"command", "command twice", "pause first", "context"}[rnd.IntN(4)]
		late := l.cancel(t, how)
		l.until(t, "the end", func() bool { return l.state.Final() })
		if err := l.order(t, "cancel", ""); !errors.Is(err, schema.ErrEnded) {
			t.Errorf("run %d: a cancel behind the end: %v", i, err)
		}
		events, err := l.ended(t)
		last := events[len(events)-1]
		state := string(last.Payload)
		if err != nil && !(how == "context" && errors.Is(err, errGone)) {
			t.Errorf("run %d (%s, %s at %d): %v", i, script, how, at, err)
		}
		if err := checkEnding(unpaused(events), whole[script]); err != nil {
			t.Errorf("run %d (%s, %s at %d, %d events): %v", i, script, how, at, len(events), err)
		}
		mu.Lock()
		defer mu.Unlock()
		if aborted := strings.Contains(state, `"aborted"`); aborted {
			ends[how]++
			points[script+" "+strings.Join(opened(events, whole[script]), ",")] = true
		} else if !late {
			ends["in vain"]++ // the story was over before the command was heard
		} else {
			ends["too late"]++
		}
	}
	n := 0
	for most := shots(200); n == 0 || n < most && !testing.Short() && len(points) < 20; n += shots(50) {
		eachLive(t, n, shots(50), once)
	}
	if aborted := n - ends["in vain"] - ends["too late"]; aborted < n/2 || !testing.Short() && len(points) < 20 {
		t.Errorf("%v, %d different moments", ends, len(points))
	}
	t.Logf("%v, %d different moments", ends, len(points))
}

// cancel cancels the run. late: it was over.
func (l *live) cancel(t *testing.T, how string) (late bool) {
	var errs []error
	switch how {
	case "context":
		l.stop(errGone)
	case "pause first":
		errs = append(errs, l.order(t, "pause", ""))
		l.until(t, "a pause", func() bool { return l.state == schema.StatePaused || l.state.Final() })
		errs = append(errs, l.order(t, "cancel", ""))
	case "command twice":
		errs = append(errs, l.order(t, "cancel", ""), l.order(t, "cancel", ""))
	default:
		errs = append(errs, l.order(t, "cancel", ""))
	}
	for _, err := range errs {
		if late = late || errors.Is(err, schema.ErrEnded); err != nil && !errors.Is(err, schema.ErrEnded) {
			t.Errorf("%s: %v", l.key, err)
		}
	}
	return late
}

// unpaused leaves out that the run was paused.
func unpaused(events []schema.Event) []schema.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e schema.Event) bool {
		return e.Type == schema.TypeRunLifecycle && e.ChildID == "" && strings.Contains(string(e.Payload), `"paused"`)
	})
}

// opened names the types that ended a run, as a measure of how different the moments are.
func opened(events, whole []schema.Event) (types []string) {
	n := 0
	for _, e := range unpaused(events) {
		switch {
		case strings.HasPrefix(e.Type, "command"):
		case n < len(whole) && same(&e, &whole[n]):
			n++
		default:
			types = append(types, e.ChildID+e.Type)
		}
	}
	return types
}

var volatile = regexp.MustCompile(`"(msg|turn|model|task)_\d+"|"(input_tokens|cache_read_input_tokens|duration_ms)":\d+`)

// lane returns one lane's events without what depends on what the other lanes do.
func lane(events []schema.Event, child string) (out []string) {
	for _, e := range events {
		if e.ChildID == child && !strings.HasPrefix(e.Type, "command") {
			out = append(out, e.Type+" "+volatile.ReplaceAllString(string(e.Payload), "0"))
		}
	}
	return out
}

// TestCancelChildLive cancels one child at random points: it ends in order, its call ends after it, and
// everybody else tells what they would have told.
func TestCancelChildLive(t *testing.T) {
	whole := listened(t, "tour")
	var mu sync.Mutex
	ends := map[string]int{}
	once := func(t *testing.T, log *natsjs.Log, i int, rnd *rand.Rand, speed float64) {
		children := []string{"run_demo_review", "run_demo_costs"}
		child, other := children[i%2], children[1-i%2]
		l := start(t, log, fmt.Sprintf("child%d", i), Config{Speed: speed})
		l.until(t, "the child", func() bool { return l.kids[child] })
		time.Sleep(time.Duration(rnd.Float64() * float64(5*time.Second) / speed))
		err := errors.Join(l.order(t, "cancel", child), l.order(t, "cancel", child))
		if err != nil && !errors.Is(err, schema.ErrEnded) { // the run was over
			t.Errorf("run %d: %v", i, err)
		}
		l.until(t, "the end", func() bool { return l.state.Final() })
		events, err := l.ended(t)
		if err != nil {
			t.Errorf("run %d: %v", i, err)
		}
		aborted, err := checkChild(events, whole, child)
		if err != nil {
			t.Errorf("run %d, %s: %v", i, child, err)
		}
		if !slices.Equal(lane(events, other), lane(whole, other)) {
			t.Errorf("run %d: %s tells another story", i, other)
		}
		mu.Lock()
		defer mu.Unlock()
		ends[fmt.Sprintf("%s aborted %v", child, aborted)]++
	}
	both := func() bool {
		return ends["run_demo_review aborted true"] > 0 && ends["run_demo_costs aborted true"] > 0
	}
	n := shots(30)
	for speed := 60.0; speed > 1 && !both(); speed /= 4 { // on a busy machine a command comes too late for a quick story
		eachLive(t, 0, n, func(t *testing.T, log *natsjs.Log, i int, rnd *rand.Rand) { once(t, log, i, rnd, speed) })
		n = 6
	}
	if !both() {
		t.Errorf("%v", ends)
	}
	t.Log(ends)
}

// checkChild holds a tour in which a child was cancelled to the rules.
func checkChild(events, whole []schema.Event, child string) (aborted bool, err error) {
	l := newLedger()
	told, story := lane(events, child), lane(whole, child)
	n, mine := 0, 0
	var want, got []string
	for i := range events {
		e := &events[i]
		own := e.ChildID == child && !strings.HasPrefix(e.Type, "command")
		if own && mine == n && n < len(story) && told[mine] == story[n] {
			n++
		} else if own {
			if want == nil {
				want = l.open(l.lanes[child])
			}
			got = append(got, named(e))
		}
		if own {
			mine++
		}
		if err := l.take(e); err != nil {
			return false, fmt.Errorf("event %d: %w", i, err)
		}
	}
	if aborted = len(got) > 0; !slices.Equal(want, got) {
		return aborted, broken("the child ends with %v and not %v", got, want)
	}
	call := strings.TrimPrefix(child, "run_demo_")
	root, wholeRoot := lane(events, ""), lane(whole, "")
	at := slices.IndexFunc(root, func(s string) bool { return strings.HasPrefix(s, `tool.end {"call_id":"call_`+call+`"`) })
	if at < 0 || strings.Contains(root[at], `"ok":false`) != aborted {
		return aborted, broken("its call ends %v", root[max(at, 0)])
	}
	// Its call may end at another time than it would have; the rest is as it was.
	del := func(list []string) []string {
		list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.HasPrefix(s, "tool.") })
		return list
	}
	if !slices.Equal(del(root), del(wholeRoot)) {
		return aborted, broken("the agent tells another story")
	}
	if l.lanes[""].state != schema.StateDone || !l.ended {
		return aborted, broken("the run ends in %s", l.lanes[""].state)
	}
	return aborted, nil
}

// TestFencedLive: an agent whose run was taken over stops, and says so.
func TestFencedLive(t *testing.T) {
	eachLive(t, 0, max(shots(40), 8), func(t *testing.T, log *natsjs.Log, i int, rnd *rand.Rand) {
		l := start(t, log, fmt.Sprintf("fenced%d", i), Config{Speed: 50})
		at := schema.Seq(1 + rnd.IntN(300))
		l.until(t, "event", func() bool { return l.seen >= at })
		other, err := producers.New(producers.Config{Log: log, Key: l.key})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := other.Append(t.Context(),
			schema.Event{Type: schema.TypeProgress, Payload: []byte(`{"message":"mine"}`)}); err != nil {
			t.Error(err)
		}
		l.until(t, "the agent's end", func() bool { return false })
		events, err := l.ended(t)
		if !errors.Is(err, producers.ErrFenced) {
			t.Errorf("run %d: %v", i, err)
		}
		for _, e := range events[slices.IndexFunc(events,
			func(e schema.Event) bool { return e.Type == schema.TypeProgress })+1:] {
			if e.ChildID == "" {
				t.Errorf("run %d: %s %s behind the takeover", i, e.Type, e.Payload)
			}
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
