package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/producers"
	commands "agentstream/producers/command"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// agents stand for the platform that runs sessions: for each session that is created in a log they begin a
// scripted agent, which does what people say to it (see scripts). They know nothing of the protocol that the
// session is spoken to in: they hold a pen, and are handed commands.
type agents struct {
	log *pubjs.Log

	mu   sync.Mutex
	seen map[string]bool
	all  sync.WaitGroup
}

// startAgents serves sessions until the test ends.
func startAgents(t *testing.T, url string) { serveRuns(t, url, "sess_", serveSession) }

// serveRuns begins an agent for each run whose id begins with a prefix, until the test ends.
func serveRuns(t *testing.T, url, prefix string, serve func(context.Context, *pubjs.Log, schema.RunKey) error) {
	t.Helper()
	nc, err := natskit.Dial(url, "agents")
	if err != nil {
		t.Fatal(err)
	}
	log, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a := &agents{log: log, seen: make(map[string]bool)}
	sub, err := nc.Subscribe(schema.LivePrefix+".>", func(m *nats.Msg) {
		key, _, err := schema.ParseSubject(m.Subject)
		if err != nil || !strings.HasPrefix(key.Run, prefix) {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.seen[key.Run] || ctx.Err() != nil {
			return
		}
		a.seen[key.Run] = true
		a.all.Go(func() {
			if err := serve(ctx, log, key); err != nil {
				t.Errorf("agent of %s: %v", key, err)
			}
		})
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sub.Unsubscribe() // the connection is closed below
		a.mu.Lock()
		stop()
		a.mu.Unlock()
		a.all.Wait()
		nc.Close()
	})
}

// sessionAgent is the agent of one session.
type sessionAgent struct {
	run      *producers.Run
	commands *commands.Reader
	running  bool
}

// serveSession does what it is told until ctx ends.
func serveSession(ctx context.Context, log *pubjs.Log, key schema.RunKey) error {
	return serveAs(ctx, log, key, (*sessionAgent).serve)
}

// serveAs has an agent of a run serve until ctx ends.
func serveAs(ctx context.Context, log *pubjs.Log, key schema.RunKey,
	serve func(*sessionAgent, context.Context) error) error {
	open, _, err := producers.ReadOpen(ctx, log, key)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	pub, err := producers.New(producers.Config{Log: log, Key: key})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = pub.Close(closing) // the test's server may be gone
	}()
	a := &sessionAgent{}
	if a.run, err = producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run, Open: open}); err != nil {
		return err
	}
	if a.commands, err = commands.New(commands.Config{Publisher: pub, Waker: log,
		Lanes: func(string) bool { return true }}); err != nil {
		return err
	}
	defer a.commands.Close()
	return ignoreEnd(ctx, serve(a, ctx))
}

func (a *sessionAgent) serve(ctx context.Context) error {
	for {
		cmd, err := a.next(ctx)
		if err != nil {
			return err
		}
		if cmd.Name != "message" || strings.Contains(string(cmd.Event.Payload), `"role":"system"`) {
			continue // said when nothing is under way
		}
		if err := a.answer(ctx, cmd.Text()); err != nil {
			return fmt.Errorf("%q: %w", cmd.Text(), err)
		}
	}
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// next takes the next command, and says so at once: this agent may lose one when it dies, which it does not.
func (a *sessionAgent) next(ctx context.Context) (*commands.Command, error) {
	cmd, err := a.commands.Next(ctx)
	if err != nil {
		return nil, err
	}
	a.run.Receive(&cmd.Event)
	return cmd, cmd.Commit(ctx)
}

// scripts are what an agent can do, by the first word that it is told.
var scripts = map[string]func(*sessionAgent, *producers.Turn, string) error{
	"say":      (*sessionAgent).say,
	"fail":     (*sessionAgent).fail,
	"long":     (*sessionAgent).long,
	"confirm":  (*sessionAgent).confirm,
	"custom":   (*sessionAgent).custom,
	"run":      (*sessionAgent).handOut,
	"two":      (*sessionAgent).two,
	"question": (*sessionAgent).question,
	"child":    (*sessionAgent).child,
	"finish":   (*sessionAgent).say,
}

// answer is one turn.
func (a *sessionAgent) answer(ctx context.Context, said string) error {
	if !a.running {
		if err := a.run.State(ctx, schema.StateRunning, ""); err != nil {
			return err
		}
	}
	a.running = true
	turn, err := a.run.Turn(ctx)
	if err != nil {
		return err
	}
	// What the command has said already is repeated, as many agents do: it must not be shown twice.
	if err := turn.User(said); err != nil {
		return err
	}
	word, rest, _ := strings.Cut(said, " ")
	script, ok := scripts[word]
	if !ok {
		return fmt.Errorf("no script for %q", said)
	}
	switch err := script(a, turn, rest); {
	case errors.Is(err, errEnded):
	case err != nil:
		return err
	default:
		if err := turn.End("end_turn"); err != nil {
			return err
		}
	}
	if word == "finish" {
		a.running = false
		return a.run.Finish(ctx)
	}
	return a.run.Flush(ctx)
}

// errEnded reports that a script has ended its turn by itself.
var errEnded = errors.New("the turn is over")

// modelUsage is what a model call says that it has used.
var modelUsage = map[string]int{"input_tokens": 12, "output_tokens": 7}

// model is a model call, with one message in it.
func model(turn *producers.Turn, message func(*producers.Message) error, stop string) error {
	call, err := turn.BeginModel("anthropic", "claude-test")
	if err != nil {
		return err
	}
	m, err := turn.Message(producers.MessageInfo{Model: "claude-test", Provider: "anthropic"})
	if err != nil {
		return err
	}
	if err := errors.Join(message(m), m.End(stop, modelUsage)); err != nil {
		return err
	}
	return call.End(modelUsage)
}

// pieces says a text in small deltas, some within a word.
func pieces(say func(string) error, text string) error {
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(5, len(runes))
		if err := say(string(runes[:n])); err != nil {
			return err
		}
		runes = runes[n:]
	}
	return nil
}

// speech is what say says: two blocks of text with thoughts before each.
const speech = "Grüße 🌍 \"in\" \\ quotes,\n\ttabs\u2028 and <tags> & all."

func (a *sessionAgent) say(turn *producers.Turn, rest string) error {
	return model(turn, func(m *producers.Message) error {
		return errors.Join(
			pieces(m.Reasoning, "Somebody wants to hear something."), pieces(m.Text, speech),
			pieces(m.Reasoning, "And now what they said."), pieces(m.Text, "You said: "+rest))
	}, "end_turn")
}

func (a *sessionAgent) tell(turn *producers.Turn, text string) error {
	return model(turn, func(m *producers.Message) error { return pieces(m.Text, text) }, "end_turn")
}

func (a *sessionAgent) fail(turn *producers.Turn, rest string) error {
	return errors.Join(errEnded, turn.Fail(errors.New(rest)))
}

// long speaks until somebody interrupts it.
func (a *sessionAgent) long(turn *producers.Turn, _ string) error {
	m, err := turn.Message(producers.MessageInfo{Model: "claude-test"})
	if err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		cmd, err := a.commands.TryNext(turn.Context())
		if err != nil {
			return err
		}
		if cmd != nil && cmd.Name == "cancel" {
			a.run.Receive(&cmd.Event)
			return errors.Join(cmd.Commit(turn.Context()), errEnded, turn.Cancel("interrupted"))
		}
		if err := m.Text("and on "); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-turn.Context().Done():
			return context.Cause(turn.Context())
		}
	}
}

// call says a tool call in a message, and that the tool is called with what more says of it.
func call(turn *producers.Turn, id, tool, more string) error {
	input := `{"city":"Grüße 🌍"}`
	events := []schema.Event{
		{Type: schema.TypeMessageStart, Payload: fmt.Appendf(nil,
			`{"message_id":"msg_%s","role":"assistant","model":"claude-test"}`, id)},
		{Type: schema.TypeBlockStart, Payload: fmt.Appendf(nil, `{"index":0,"kind":"tool_use","call_id":%q,"tool":%q}`,
			id, tool)},
	}
	for i := 0; i < len(input); {
		n := min(6, len(input)-i)
		for i+n < len(input) && input[i+n]&0xc0 == 0x80 { // not within a rune
			n++
		}
		events = append(events, schema.Event{Type: schema.TypeToolInputDelta,
			Payload: fmt.Appendf(nil, `{"call_id":%q,"text":%s,"index":0}`, id, quoted(input[i:i+n]))})
		i += n
	}
	events = append(events,
		schema.Event{Type: schema.TypeBlockEnd, Payload: fmt.Appendf(nil, `{"index":0,"call_id":%q,"input":%s}`, id, input)},
		schema.Event{Type: schema.TypeMessageEnd,
			Payload: fmt.Appendf(nil, `{"message_id":"msg_%s","content":[{"type":"tool_use","id":%q,"name":%q,"input":%s}],"stop_reason":"tool_use"}`, id, id, tool, input)},
		schema.Event{Type: schema.TypeToolStart,
			Payload: fmt.Appendf(nil, `{"call_id":%q,"tool":%q,"input":%s%s}`, id, tool, input, more)})
	return turn.Feed(events...)
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}

func ended(turn *producers.Turn, id string, ok bool, output string) error {
	return turn.Feed(schema.Event{Type: schema.TypeToolEnd,
		Payload: fmt.Appendf(nil, `{"call_id":%q,"ok":%t,"output":%s}`, id, ok, quoted(output))})
}

// waits says that a call waits for the client.
func (a *sessionAgent) waits(turn *producers.Turn, id string) error {
	return a.run.Emit(turn.Context(), schema.TypeInputRequested,
		json.RawMessage(fmt.Sprintf(`{"request_id":%q,"call_id":%q}`, id, id)))
}

// heard waits for the answer to a request, and says that it is there.
func (a *sessionAgent) heard(turn *producers.Turn, ids ...string) (answers map[string]sentEvent, err error) {
	answers = make(map[string]sentEvent)
	for len(answers) < len(ids) {
		cmd, err := a.next(turn.Context())
		if err != nil {
			return nil, err
		}
		if cmd.Name != "answer" {
			continue
		}
		var sent sentEvent
		if err := json.Unmarshal(cmd.Answer(), &sent); err != nil {
			return nil, fmt.Errorf("answer %s: %w", cmd.Answer(), err)
		}
		answers[cmd.RequestID()] = sent
		if err := a.run.Answer(turn.Context(), cmd.RequestID(), cmd.Answer()); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if _, ok := answers[id]; !ok {
			return nil, fmt.Errorf("answers %v, want %v", answers, ids)
		}
	}
	return answers, nil
}

// sentEvent is what a client says of a tool.
type sentEvent struct {
	Type, Result string
	DenyMessage  string `json:"deny_message"`
	Content      []struct{ Type, Text string }
	IsError      bool `json:"is_error"`
}

func (s sentEvent) text() string {
	var all []string
	for _, b := range s.Content {
		all = append(all, b.Text)
	}
	return strings.Join(all, " ")
}

// confirm calls a tool when the client lets it.
func (a *sessionAgent) confirm(turn *producers.Turn, _ string) error {
	id := "call_" + turn.ID()
	if err := errors.Join(call(turn, id, "weather", `,"permission":"ask"`), a.waits(turn, id)); err != nil {
		return err
	}
	answers, err := a.heard(turn, id)
	if err != nil {
		return err
	}
	if answer := answers[id]; answer.Result != "allow" {
		return errors.Join(ended(turn, id, false, "denied"), a.tell(turn, "It is denied: "+answer.DenyMessage))
	}
	return errors.Join(ended(turn, id, true, "sunny"), a.tell(turn, "It is sunny."))
}

// custom calls a tool that the client has.
func (a *sessionAgent) custom(turn *producers.Turn, _ string) error {
	id := "call_" + turn.ID()
	if err := errors.Join(call(turn, id, "lookup", `,"custom":true`), a.waits(turn, id)); err != nil {
		return err
	}
	return a.report(turn, id)
}

// report says what the client's tools have found.
func (a *sessionAgent) report(turn *producers.Turn, ids ...string) error {
	answers, err := a.heard(turn, ids...)
	if err != nil {
		return err
	}
	var found []string
	for _, id := range ids {
		found = append(found, answers[id].text())
		if err := ended(turn, id, !answers[id].IsError, answers[id].text()); err != nil {
			return err
		}
	}
	return a.tell(turn, "Found: "+strings.Join(found, ", "))
}

// handOut has the client run a tool of the agent's, and then one of the client's own. It does not say that it
// waits before a while has passed: the client may be faster.
func (a *sessionAgent) handOut(turn *producers.Turn, rest string) error {
	first, second := "call_1_"+turn.ID(), "call_2_"+turn.ID()
	if err := call(turn, first, "weather", ""); err != nil {
		return err
	}
	if err := errors.Join(a.run.Flush(turn.Context()), rested(turn.Context(), 100*time.Millisecond),
		a.waits(turn, first)); err != nil {
		return err
	}
	if err := a.report(turn, first); err != nil {
		return err
	}
	if err := errors.Join(call(turn, second, "lookup", `,"custom":true`), a.waits(turn, second)); err != nil {
		return err
	}
	return a.report(turn, second)
}

func rested(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// two waits for two tools of the client at the same time.
func (a *sessionAgent) two(turn *producers.Turn, _ string) error {
	first, second := "call_1_"+turn.ID(), "call_2_"+turn.ID()
	for _, id := range []string{first, second} {
		if err := errors.Join(call(turn, id, "lookup", `,"custom":true`), a.waits(turn, id)); err != nil {
			return err
		}
	}
	return a.report(turn, first, second)
}

// question asks for something that no tool is called for.
func (a *sessionAgent) question(turn *producers.Turn, _ string) error {
	id := "ask_" + turn.ID()
	if err := a.run.Ask(turn.Context(), id, "Which one?", []string{"red", "blue"}, nil); err != nil {
		return err
	}
	answers, err := a.heard(turn, id)
	if err != nil {
		return err
	}
	return a.tell(turn, "It is "+answers[id].text())
}

// child has a child say something, and says something itself.
func (a *sessionAgent) child(turn *producers.Turn, rest string) error {
	ctx, id := turn.Context(), "call_"+turn.ID()
	if err := call(turn, id, "delegate", ""); err != nil {
		return err
	}
	lane, err := a.run.Spawn(ctx, "", rest, id)
	if err != nil {
		return err
	}
	work, err := lane.Turn(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(a.say(work, rest), work.End("end_turn"), lane.Finish(ctx)); err != nil {
		return err
	}
	return errors.Join(ended(turn, id, true, "told"), a.tell(turn, "The child has said it."))
}
