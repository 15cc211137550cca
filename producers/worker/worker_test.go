package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/producers/worker/workertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// office is a real log, with somebody who writes into it.
type office struct {
	t        *testing.T
	log      *natsjs.Log
	appender *producers.Appender
	again    time.Duration // until what is not done is told again
}

func newOffice(t *testing.T) *office {
	t.Helper()
	k := testkit.NATS(t)
	o := &office{t: t, again: time.Second}
	var err error
	if o.log, err = natsjs.Open(t.Context(), k.Conn); err != nil {
		t.Fatal(err)
	}
	if o.appender, err = producers.NewAppender(producers.AppenderConfig{Log: o.log}); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *office) put(run, typ, payload string) schema.Seq {
	o.t.Helper()
	key := schema.RunKey{Tenant: "acme", Run: run}
	r, err := o.appender.Append(o.t.Context(), key,
		[]schema.Event{{Type: typ, Actor: "user", Payload: json.RawMessage(payload)}}, producers.AppendOptions{})
	if err != nil {
		o.t.Fatalf("%s of %s: %v", typ, run, err)
	}
	return r.Last
}

func (o *office) session(run string) { o.t.Helper(); o.put(run, schema.TypeSessionCreated, `{}`) }
func (o *office) say(run, text string) schema.Seq {
	o.t.Helper()
	return o.put(run, schema.TypeCommandMessage, fmt.Sprintf(`{"content":%q}`, text))
}

// staff is a worker at work. leave ends it.
func (o *office) staff(cfg worker.Config) (leave func()) {
	o.t.Helper()
	cfg.Log, cfg.Waker, cfg.Attend, cfg.Ask = o.log, o.log, o.log.Attend, o.log.Ask
	cfg.Logger = slog.New(slog.NewTextHandler(o.t.Output(), nil))
	cfg.Outcome = func(redirect []byte) bool { return schema.Field(redirect, "reach") != nil }
	cfg.Alone = func(message []byte) bool { return schema.Field(message, "alone") != nil }
	cfg.Reasons = producers.Reasons{Timeout: "late", Broken: "broken"}
	d, err := worker.New(cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := d.Run(ctx); err != nil {
			o.t.Error(err)
		}
	})
	group.Go(func() {
		err := o.log.Follow(ctx, natsjs.FollowConfig{Name: "worker", Again: o.again, Logger: cfg.Logger}, d.Receive)
		if err != nil {
			o.t.Error(err)
		}
	})
	leave = sync.OnceFunc(func() { cancel(); group.Wait() })
	o.t.Cleanup(leave)
	return leave
}

// events returns what is in a run, as type and, of what matters here, text.
func (o *office) events(run string) (out []string) {
	o.t.Helper()
	for p, err := range o.log.Since(o.t.Context(), schema.RunKey{Tenant: "acme", Run: run}, 0) {
		if err != nil {
			o.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				o.t.Fatal(err)
			}
			var f struct {
				Text    string          `json:"text"`
				Content json.RawMessage `json:"content"`
				Stop    string          `json:"stop_reason"`
				Through int             `json:"through"`
			}
			_ = json.Unmarshal(r.Payload(), &f)
			line := string(r.Type)
			switch line {
			case schema.TypeTextDelta:
				line += " " + f.Text
			case schema.TypeCommandMessage:
				line += " " + string(f.Content)
			case schema.TypeTurnEnd:
				line += " " + f.Stop
			case schema.TypeCommandsTaken:
				line += fmt.Sprint(" ", f.Through)
			case schema.TypeProgress: // how the first lane of a run is taken over
				continue
			}
			out = append(out, line)
		}
	}
	return out
}

// await waits until a run holds so many events like this.
func (o *office) await(run, event string, n int) []string {
	o.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all := o.events(run)
		got := 0
		for _, e := range all {
			if e == event {
				got++
			}
		}
		if got >= n {
			return all
		}
		if time.Now().After(end) {
			o.t.Fatalf("%s: %q was awaited %d times:\n%s", run, event, n, strings.Join(all, "\n"))
		}
	}
}

// Two sessions, one run that is none: each message is answered once, in order, and the session stays open.
func TestAnswers(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Answer: workertest.Echo})
	o.put("other", schema.TypeRunLifecycle, `{"state":"running","reason":null}`)
	o.session("s1")
	o.session("s2")
	o.say("other", "nobody is asked")
	o.say("s1", "one")
	o.say("s1", "two")
	o.say("s2", "three")
	all := o.await("s1", "turn.end end_turn", 2)
	var got []string
	for _, e := range all {
		if strings.HasPrefix(e, schema.TypeTextDelta) || strings.HasPrefix(e, schema.TypeTurnEnd) {
			got = append(got, e)
		}
	}
	want := []string{"text.delta re: one", "turn.end end_turn", "text.delta re: two", "turn.end end_turn"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	o.await("s2", "text.delta re: three", 1)
	o.say("s1", "four")
	o.await("s1", "text.delta re: four", 1)
	if all := o.events("other"); len(all) != 2 {
		t.Errorf("a run that is no session is answered: %v", all)
	}
}

// What is said while nobody is there is answered by who comes; what was answered is not answered again; a turn
// that was cut, of which its worker has written nothing more, is ended, and its message answered from the beginning.
func TestComesBack(t *testing.T) {
	o := newOffice(t)
	o.session("s1")
	first := o.say("s1", "one")
	began := make(chan struct{}, 1)
	leave := o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		if q.Message.Event.Seq == first {
			return workertest.Echo(ctx, q)
		}
		m, err := q.Turn.Message(producers.MessageInfo{})
		if err != nil {
			return "", err
		}
		if err := m.Text("half"); err != nil {
			return "", err
		}
		began <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	o.await("s1", "turn.end end_turn", 1)
	o.say("s1", "two")
	<-began
	leave()
	if left := o.events("s1"); left[len(left)-1] != "text.delta half" {
		t.Errorf("a worker that leaves has written:\n%s", strings.Join(left, "\n"))
	}
	o.say("s1", "three")
	o.staff(worker.Config{Answer: workertest.Echo})
	o.await("s1", "text.delta re: three", 1)
	all := o.await("s1", "turn.end end_turn", 3)
	for _, text := range []string{"one", "two", "three"} {
		if n := count(all, "text.delta re: "+text); n != 1 {
			t.Errorf("%s is answered %d times:\n%s", text, n, strings.Join(all, "\n"))
		}
	}
}

func count(all []string, event string) (n int) {
	for _, e := range all {
		if e == event {
			n++
		}
	}
	return n
}

// A worker that dies in the middle of a turn leaves it open: the next one ends it and answers again.
func TestDiesAndComesBack(t *testing.T) {
	o := newOffice(t)
	o.session("s1")
	o.say("s1", "one")
	key := schema.RunKey{Tenant: "acme", Run: "s1"}
	pub, err := producers.New(producers.Config{Log: o.log, Key: key}) // whose process is gone, and answers nobody
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []schema.Event{{Type: schema.TypeTurnStart, Payload: json.RawMessage(`{"turn_id":"t"}`)},
		{Type: schema.TypeTextDelta, Payload: json.RawMessage(`{"text":"ha"}`)}} {
		if _, err := pub.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := pub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.staff(worker.Config{Answer: workertest.Echo})
	all := o.await("s1", "turn.end end_turn", 1)
	if count(all, "turn.end error") != 1 || count(all, "text.delta re: one") != 1 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// A cancellation ends the turn and what waits before it; what is said behind it is answered.
func TestCancels(t *testing.T) {
	o := newOffice(t)
	began := make(chan struct{}, 1)
	var calls atomic.Int32
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		if calls.Add(1) > 1 {
			return workertest.Echo(ctx, q)
		}
		began <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	o.session("s1")
	o.say("s1", "one")
	<-began
	o.say("s1", "two")
	at := o.put("s1", "command.cancel", `{"reason":"enough"}`)
	o.await("s1", "turn.end cancelled", 1)
	o.await("s1", fmt.Sprint("commands.taken ", int(at)), 1)
	o.say("s1", "three")
	all := o.await("s1", "text.delta re: three", 1)
	if count(all, "text.delta re: two") != 0 || count(all, "turn.start") != 2 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// An outcome to reach is answered like a message: as the first thing that is said, while something else is answered,
// and in a run that it begins anew. It is cancelled like one, and a plain redirect is for nobody.
func TestOutcomes(t *testing.T) {
	const outcome = `{"instruction":%q,"reach":%q}`
	o := newOffice(t)
	said := make(chan string, 10)
	gate := make(chan struct{}, 10)
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		said <- string(q.Content())
		select {
		case <-gate:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return workertest.Echo(ctx, q)
	}})
	reach := func(run, text string) schema.Seq {
		return o.put(run, "command.redirect", fmt.Sprintf(outcome, text, text))
	}
	o.session("s1")
	o.put("s1", "command.redirect", `{"instruction":"elsewhere, not \"reach\""}`)
	reach("s1", "one")
	if got := <-said; got != `"one"` {
		t.Errorf("it is asked %s", got)
	}
	reach("s1", "two")
	o.put("s1", "command.redirect", `{"instruction":"elsewhere"}`)
	o.say("s1", "three")
	for range 3 {
		gate <- struct{}{}
	}
	o.await("s1", "text.delta re: three", 1)
	o.await("s1", "turn.end end_turn", 3)
	o.put("s1", schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	o.put("s1", schema.TypeRunLifecycle, `{"state":"planning","reason":null}`)
	gate <- struct{}{}
	reach("s1", "four")
	o.await("s1", "text.delta re: four", 1)
	o.await("s1", "turn.end end_turn", 4)
	reach("s1", "five")
	at := o.put("s1", "command.cancel", `{}`)
	all := o.await("s1", fmt.Sprint("commands.taken ", int(at)), 1)
	for text, n := range map[string]int{"one": 1, "two": 1, "three": 1, "four": 1, "five": 0} {
		if count(all, "text.delta re: "+text) != n {
			t.Errorf("%s: %s", text, strings.Join(all, "\n"))
		}
	}
}

// A redirect alone opens no session.
func TestPlainRedirect(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Answer: workertest.Echo})
	o.session("s1")
	o.put("s1", "command.redirect", `{"instruction":"elsewhere"}`)
	o.session("s2")
	o.say("s2", "hello")
	o.await("s2", "turn.end end_turn", 1)
	if all := o.events("s1"); len(all) != 2 {
		t.Errorf("%v", all)
	}
}

// What was cancelled before anybody came is not answered.
func TestCancelledBefore(t *testing.T) {
	o := newOffice(t)
	o.session("s1")
	o.say("s1", "one")
	o.put("s1", "command.cancel", `{}`)
	o.say("s1", "two")
	o.put("s1", schema.TypeCommandMessage, `{"content":"know this","role":"system"}`)
	o.staff(worker.Config{Answer: workertest.Echo})
	all := o.await("s1", "commands.taken 5", 1)
	if count(all, "text.delta re: two") != 1 || count(all, "turn.start") != 1 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// An answer that fails, or leaves something open, fails its turn; the next message is answered.
func TestFails(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		switch q.Message.Text() {
		case "fail":
			return "", errors.New("no")
		case "leave":
			_, err := q.Turn.Message(producers.MessageInfo{})
			return "", err
		}
		return workertest.Echo(ctx, q)
	}})
	o.session("s1")
	o.say("s1", "fail")
	o.say("s1", "leave")
	o.say("s1", "speak")
	all := o.await("s1", "text.delta re: speak", 1)
	if count(all, "turn.end error") != 2 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// With one place, sessions take turns; a session in which nothing is said gives its place up at once, and what is
// said while it waits for a person stays in the log.
func TestPlaces(t *testing.T) {
	o := newOffice(t)
	var now, most atomic.Int32
	o.staff(worker.Config{Most: 2, Idle: time.Hour, Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		return workertest.Echo(ctx, q)
	}})
	const sessions = 12
	for i := range sessions {
		o.session(fmt.Sprint("s", i))
		o.say(fmt.Sprint("s", i), "one")
	}
	for i := range sessions {
		o.await(fmt.Sprint("s", i), "text.delta re: one", 1)
	}
	for i := range sessions {
		o.say(fmt.Sprint("s", i), "two")
	}
	for i := range sessions {
		all := o.await(fmt.Sprint("s", i), "text.delta re: two", 1)
		if count(all, "text.delta re: one") != 1 {
			t.Errorf("session %d: %s", i, strings.Join(all, "\n"))
		}
	}
	if most.Load() > 2 {
		t.Errorf("%d sessions were answered at a time", most.Load())
	}
}

// With one place, a session in which nothing is said gives its place to the next.
func TestGivesItsPlace(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Most: 1, Idle: time.Hour, Answer: workertest.Echo})
	o.session("s1")
	o.session("s2")
	for i := range 4 {
		run := fmt.Sprint("s", 1+i%2)
		o.say(run, fmt.Sprint(i))
		o.await(run, fmt.Sprint("text.delta re: ", i), 1)
	}
}

// A session is left when nothing is said, and opened again, also by what is said in the moment of leaving.
func TestIdles(t *testing.T) {
	o := newOffice(t)
	o.again = time.Hour
	o.staff(worker.Config{Idle: time.Millisecond, Answer: workertest.Echo})
	o.session("s1")
	const messages = 80
	for i := range messages {
		o.say("s1", fmt.Sprint(i))
		if i%4 == 0 {
			o.await("s1", fmt.Sprint("text.delta re: ", i), 1)
		}
	}
	o.await("s1", "turn.end end_turn", messages)
}

// Two workers share the sessions: each message is answered once, and nobody's turn is taken over.
func TestTwoWorkers(t *testing.T) {
	o := newOffice(t)
	slow := func(ctx context.Context, q *worker.Task) (string, error) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return workertest.Echo(ctx, q)
	}
	o.staff(worker.Config{Answer: slow, Idle: 100 * time.Millisecond})
	o.staff(worker.Config{Answer: slow, Idle: 100 * time.Millisecond})
	const sessions, messages = 4, 5
	for i := range sessions {
		o.session(fmt.Sprint("s", i))
	}
	for m := range messages {
		for i := range sessions {
			o.say(fmt.Sprint("s", i), fmt.Sprint(m))
		}
	}
	for i := range sessions {
		all := o.await(fmt.Sprint("s", i), "turn.end end_turn", messages)
		if count(all, "turn.end error") != 0 {
			t.Errorf("session %d: a turn was cut:\n%s", i, strings.Join(all, "\n"))
		}
		for m := range messages {
			if n := count(all, fmt.Sprint("text.delta re: ", m)); n != 1 {
				t.Errorf("session %d: message %d is answered %d times:\n%s", i, m, n, strings.Join(all, "\n"))
			}
		}
	}
}
