package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// talk is a session on a real log, which a worker answers with Replies.
type talk struct {
	t        *testing.T
	log      *natsjs.Log
	key      schema.RunKey
	appender *producers.Appender
	seen     chan struct{} // somebody should look again
}

func newTalk(t *testing.T, r Replies) *talk {
	t.Helper()
	k := testkit.NATS(t)
	s := &talk{t: t, key: schema.RunKey{Tenant: "acme", Run: "sess_1"}, seen: make(chan struct{}, 1)}
	var err error
	if s.log, err = natsjs.Open(t.Context(), k.Conn); err != nil {
		t.Fatal(err)
	}
	if s.appender, err = producers.NewAppender(producers.AppenderConfig{Log: s.log}); err != nil {
		t.Fatal(err)
	}
	d, err := worker.New(worker.Config{Log: s.log, Waker: s.log, Attend: s.log.Attend, Ask: s.log.Ask, Answer: r.Answer,
		Outcome: func(redirect []byte) bool { return schema.Field(redirect, "event") != nil }})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := s.log.Watch(t.Context(), s.key, func(schema.Pack) {
		select {
		case s.seen <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = d.Run(ctx) })
	group.Go(func() { _ = s.log.Follow(ctx, natsjs.FollowConfig{Name: "worker"}, d.Receive) })
	t.Cleanup(func() { cancel(); group.Wait(); stop() })
	s.put("", schema.TypeSessionCreated, `{}`)
	return s
}

func (s *talk) put(child, typ, payload string) {
	s.t.Helper()
	e := schema.Event{Type: typ, ChildID: child, Actor: "user", Payload: json.RawMessage(payload)}
	if _, err := s.appender.Append(s.t.Context(), s.key, []schema.Event{e}, producers.AppendOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *talk) say(text string) {
	s.put("", schema.TypeCommandMessage, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text))
}

// until returns the session's events once it holds one as wanted.
func (s *talk) until(want func(schema.Event) bool) (all []schema.Event) {
	s.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		all = all[:0]
		for p, err := range s.log.Since(s.t.Context(), s.key, 0) {
			if err != nil {
				s.t.Fatal(err)
			}
			for r := range p.Records(0) {
				e, err := r.Event()
				if err != nil {
					s.t.Fatal(err)
				}
				all = append(all, e)
			}
		}
		if slices.ContainsFunc(all, want) {
			return all
		}
		select {
		case <-s.seen:
		case <-limit:
			s.t.Fatalf("nothing as awaited:\n%s", told(all))
		}
	}
}

func (s *talk) ended(n int) []schema.Event {
	s.t.Helper()
	ends := 0
	return s.until(func(e schema.Event) bool {
		switch {
		case e.Seq == 1:
			ends = 0 // from the beginning
		case e.Type == schema.TypeTurnEnd && e.ChildID == "":
			ends++
		}
		return ends == n
	})
}

// told is the types of events, those of a child in brackets, deltas of a kind once, with what matters of others.
func told(all []schema.Event) string {
	var out []string
	for _, e := range all {
		line := e.Type
		switch p := string(e.Payload); {
		case e.Type == schema.TypeProgress && p == "{}", e.Type == schema.TypeCommandsTaken && p == `{"through":1}`:
			continue // how a lane is taken over
		case e.Type == schema.TypeMessageEnd, e.Type == schema.TypeTurnEnd:
			var f struct {
				Stop string `json:"stop_reason"`
			}
			_ = json.Unmarshal(e.Payload, &f)
			line += ":" + f.Stop
		case e.Type == schema.TypeToolEnd:
			line += fmt.Sprint(":", strings.Contains(p, `"ok":true`))
		case e.Type == schema.TypeToolStart && strings.Contains(p, `"permission":"ask"`):
			line += ":ask"
		case e.Type == schema.TypeBlockEnd && strings.Contains(p, `"signature"`):
			line += ":signed"
		}
		if e.ChildID != "" {
			line = "[" + line + "]"
		}
		if n := len(out); n > 0 && strings.Contains(line, ".delta") && out[n-1] == line {
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

func want(t *testing.T, all []schema.Event, story string) {
	t.Helper()
	if got := told(all); got != strings.Join(strings.Fields(story), " ") {
		t.Errorf("\nwant %s\n got %s", strings.Join(strings.Fields(story), " "), got)
	}
}

func TestRepliesPlain(t *testing.T) {
	s := newTalk(t, Replies{})
	s.say("Reply with exactly one short sentence.")
	all := s.ended(1)
	want(t, all, `session.created command.message turn.start model.start message.start block.start text.delta block.end
		message.end:end_turn model.end commands.taken turn.end:end_turn`)
	deltas := 0
	for _, e := range all {
		if e.Type == schema.TypeTextDelta {
			deltas++
		}
		if e.Type == schema.TypeMessageEnd && (!strings.Contains(string(e.Payload),
			"“Reply with exactly one short sentence.”") || !strings.Contains(string(e.Payload), `"output_tokens":`)) {
			t.Errorf("%s", e.Payload)
		}
	}
	if deltas < 4 {
		t.Errorf("%d deltas", deltas)
	}
}

// An outcome to reach is answered as a message that says the same, also when it is the first thing that is said.
func TestRepliesToAnOutcome(t *testing.T) {
	s := newTalk(t, Replies{})
	s.put("", "command.redirect", `{"instruction":"All is well.","event":{"type":"user.define_outcome","description":"All is well."}}`)
	all := s.ended(1)
	want(t, all, `session.created command.redirect turn.start model.start message.start block.start text.delta block.end
		message.end:end_turn model.end commands.taken turn.end:end_turn`)
	for _, e := range all {
		if e.Type == schema.TypeMessageEnd && !strings.Contains(string(e.Payload), "“All is well.”") {
			t.Errorf("%s", e.Payload)
		}
	}
}

func TestRepliesWithThoughtAndTool(t *testing.T) {
	s := newTalk(t, Replies{})
	s.say("Think, and use a TOOL.")
	want(t, s.ended(1), `session.created command.message turn.start
		model.start message.start block.start reasoning.delta block.end:signed block.start text.delta block.end
		block.start tool.input.delta block.end tool.start message.end:tool_use model.end
		tool.run tool.output.delta tool.end:true
		model.start message.start block.start text.delta block.end message.end:end_turn model.end
		commands.taken turn.end:end_turn`)
}

// A tool that needs a confirmation waits for the one about it, in whatever words.
func TestRepliesConfirmed(t *testing.T) {
	for answer, ok := range map[string]bool{
		`{"type":"user.tool_confirmation","tool_use_id":"evt_1","result":"allow"}`:                     true,
		`{"type":"user.tool_confirmation","tool_use_id":"evt_1","result":"deny","deny_message":"no!"}`: false,
		`true`: true, `"yes"`: true, `null`: false,
	} {
		t.Run(answer, func(t *testing.T) {
			s := newTalk(t, Replies{})
			s.say("please confirm")
			var call string
			s.until(func(e schema.Event) bool {
				var f struct {
					CallID string `json:"call_id"`
				}
				if e.Type == schema.TypeInputRequested && json.Unmarshal(e.Payload, &f) == nil {
					call = f.CallID
				}
				return call != ""
			})
			s.put("", "command.answer", `{"request_id":"another","answer":true}`)
			s.put("", "command.answer", fmt.Sprintf(`{"request_id":%q,"answer":%s}`, call, answer))
			all := s.ended(1)
			out := ""
			if ok {
				out = "tool.run tool.output.delta "
			}
			want(t, all, fmt.Sprintf(`session.created command.message turn.start
				model.start message.start block.start text.delta block.end block.start tool.input.delta block.end tool.start:ask message.end:tool_use model.end
				input.requested command.answer command.answer input.answered %stool.end:%v
				model.start message.start block.start text.delta block.end message.end:end_turn model.end
				commands.taken turn.end:end_turn`, out, ok))
			reason := slices.ContainsFunc(all, func(e schema.Event) bool {
				return e.Type == schema.TypeToolEnd && strings.Contains(string(e.Payload), "denied: no!")
			})
			if reason != strings.Contains(answer, "no!") {
				t.Error("the tool's end does not say why")
			}
		})
	}
}

func TestRepliesNobodyConfirms(t *testing.T) {
	s := newTalk(t, Replies{Patience: 10 * time.Millisecond})
	s.say("confirm")
	if got := told(s.ended(1)); !strings.Contains(got, "input.requested input.answered tool.end:false") {
		t.Error(got)
	}
}

const childEvents = `[run.lifecycle] [turn.start] [model.start] [message.start] [block.start] [text.delta] [block.end] [message.end:end_turn] [model.end]
	[turn.end:end_turn] [run.lifecycle]`

func TestRepliesDelegated(t *testing.T) {
	s := newTalk(t, Replies{})
	s.say("delegate this")
	s.say("delegate that")
	turn := `turn.start
		model.start message.start block.start text.delta block.end block.start tool.input.delta block.end tool.start message.end:tool_use model.end
		tool.run child.spawn ` + childEvents + ` tool.end:true
		model.start message.start block.start text.delta block.end message.end:end_turn model.end
		commands.taken turn.end:end_turn `
	all := s.ended(2)
	got := strings.ReplaceAll(told(all), "command.message ", "")
	if whole := strings.Join(strings.Fields("session.created "+turn+turn), " "); got != whole {
		t.Errorf("\nwant %s\n got %s", whole, got)
	}
}

// Cancelling the child ends its work alone; cancelling the session ends the turn, and the next message works.
func TestRepliesCancelled(t *testing.T) {
	s := newTalk(t, Replies{Speed: 0.5})
	s.say("delegate this")
	child := ""
	s.until(func(e schema.Event) bool {
		if e.Type == schema.TypeTextDelta {
			child = e.ChildID
		}
		return child != ""
	})
	s.put(child, "command.cancel", `{}`)
	all := s.ended(1)
	if got := told(all); !strings.Contains(got, "[turn.end:cancelled] [run.lifecycle]") ||
		!strings.Contains(got, "tool.end:false") || !strings.HasSuffix(got, "turn.end:end_turn") {
		t.Error(got)
	}
	n := len(all)
	s.say("speak")
	s.until(func(e schema.Event) bool { return e.Type == schema.TypeTextDelta && e.Seq > schema.Seq(n) })
	s.put("", "command.cancel", `{"reason":"enough"}`)
	if got := told(s.ended(2)); !strings.Contains(got, "message.end:cancelled model.end turn.end:cancelled") {
		t.Error(got)
	}
	s.say("again")
	if got := told(s.ended(3)); !strings.HasSuffix(got,
		"message.end:end_turn model.end commands.taken turn.end:end_turn") {
		t.Error(got)
	}
}

// The words that make an answer longer: what waits, waits for so long by the pace, and ends when its turn is cancelled.
func TestRepliesAtLength(t *testing.T) {
	const tooled = `session.created command.message turn.start
		model.start message.start block.start text.delta block.end block.start tool.input.delta block.end tool.start
		block.start tool.input.delta block.end tool.start message.end:tool_use model.end
		tool.run tool.run tool.output.delta tool.end:true tool.end:true
		model.start message.start block.start text.delta block.end message.end:end_turn model.end
		commands.taken turn.end:end_turn`
	length := func(all []schema.Event, child string) (n int) {
		for _, e := range all {
			var f struct {
				Content []struct{ Text string }
			}
			if e.Type == schema.TypeMessageEnd && e.ChildID != "" == (child != "") &&
				json.Unmarshal(e.Payload, &f) == nil && len(f.Content) > 0 {
				n = max(n, len(strings.Fields(f.Content[0].Text)))
			}
		}
		return n
	}
	t.Run("tools long", func(t *testing.T) {
		s := newTalk(t, Replies{})
		s.say("Two tools, and a long answer. Wait at the seam!")
		all := s.ended(1)
		want(t, all, tooled)
		if n := length(all, ""); n != 300 {
			t.Errorf("%d words", n)
		}
	})
	t.Run("delegate long", func(t *testing.T) {
		s := newTalk(t, Replies{})
		s.say("delegate, long; wait")
		if all := s.ended(1); length(all, "child") != 300 || length(all, "") > 20 {
			t.Error(told(all))
		}
	})
	for word, behind := range map[string]string{"seam": schema.TypeModelEnd, "wait": schema.TypeToolRun,
		"delegate wait": schema.TypeTurnStart} {
		t.Run(word+" cancelled", func(t *testing.T) {
			s := newTalk(t, Replies{Speed: 2})
			s.say(word)
			s.until(func(e schema.Event) bool {
				return e.Type == behind && (e.ChildID != "" || behind != schema.TypeTurnStart)
			})
			s.put("", "command.cancel", `{}`)
			all := s.ended(1)
			got := told(all)
			if !strings.HasSuffix(strings.TrimSuffix(got, " commands.taken"), "tool.end:false turn.end:cancelled") ||
				strings.Contains(got, "tool.output.delta") ||
				strings.Contains(got, "tool.run") == (word == "seam") {
				t.Error(got)
			}
		})
	}
}
