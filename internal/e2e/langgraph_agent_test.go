package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// threadAgent answers one thread as a graph does: with states, checkpoints, tasks and events of its own. It is told
// what to do by words, in any number: "all", "long", "ask", "two"; the rest it repeats. Requests for input end its
// turn; the answers begin the next one.
type threadAgent struct {
	*sessionAgent
	messages []json.RawMessage // of the state
	step     int
	asked    map[string]string // requests for input and their answers
}

func serveThread(ctx context.Context, log *pubjs.Log, key schema.RunKey) error {
	return serveAs(ctx, log, key, func(s *sessionAgent, ctx context.Context) error {
		a := &threadAgent{sessionAgent: s, step: -1}
		return a.serve(ctx)
	})
}

func (a *threadAgent) serve(ctx context.Context) error {
	for {
		cmd, err := a.next(ctx)
		if err != nil {
			return err
		}
		switch cmd.Name {
		case "message":
			var m struct {
				ID string `json:"message_id"`
			}
			_ = json.Unmarshal(cmd.Event.Payload, &m) // the edge has looked
			a.adds("human", m.ID, cmd.Text())
			err = a.turns(ctx, cmd.Text())
		case "answer":
			if _, ok := a.asked[cmd.RequestID()]; !ok {
				continue
			}
			a.asked[cmd.RequestID()] = string(cmd.Answer())
			if err = a.run.Answer(ctx, cmd.RequestID(), cmd.Answer()); err == nil && a.answered() {
				said := "Answers:"
				for _, id := range []string{"q1", "q2"} {
					said += " " + a.asked[id]
				}
				a.asked = nil
				err = a.turns(ctx, strings.TrimSpace(said))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", cmd.Event.Payload, err)
		}
	}
}

func (a *threadAgent) answered() bool {
	for _, v := range a.asked {
		if v == "" {
			return false
		}
	}
	return len(a.asked) > 0
}

func (a *threadAgent) adds(typ, id, text string) {
	m, _ := json.Marshal(map[string]string{"type": typ, "id": id, "content": text}) // texts always encode
	a.messages = append(a.messages, m)
}

// turns is one turn.
func (a *threadAgent) turns(ctx context.Context, said string) error {
	turn, err := a.run.Turn(ctx)
	if err != nil {
		return err
	}
	feed := func(typ, payload string, args ...any) error {
		return turn.Feed(schema.Event{Type: typ, Payload: fmt.Appendf(nil, payload, args...)})
	}
	state := func() error {
		a.step++
		all, _ := json.Marshal(map[string]any{"messages": a.messages, "step": a.step}) // it was JSON
		return errors.Join(feed("checkpoint.created", `{"checkpoint_id":"%s-%d","step":%d,"source":"loop"}`, turn.ID(),
			a.step, a.step),
			feed("state.values", `{"values":%s}`, all))
	}
	pause := time.Duration(strings.Count(said, "slow")) * 100 * time.Millisecond
	tells := func(id, text string) error {
		a.adds("ai", id, text)
		err := feed("message.start", `{"message_id":%q,"role":"assistant","model":"m","provider":"anthropic"}`, id)
		return errors.Join(err, feed("block.start", `{"index":0,"kind":"text"}`), pieces(func(s string) error {
			return errors.Join(feed("text.delta", `{"index":0,"text":%s}`, quoted(s)), rested(ctx, pause))
		}, text),
			feed("block.end", `{"index":0}`), feed("message.end",
				`{"message_id":%q,"stop_reason":"end_turn","usage":{"input_tokens":12,"output_tokens":7}}`, id))
	}
	if err := errors.Join(state(), feed("task.start", `{"task_id":"task-%s","name":"agent","input":{"said":%s}}`,
		turn.ID(), quoted(said))); err != nil {
		return err
	}
	if strings.Contains(said, "long") {
		if err := a.long(turn, ""); !errors.Is(err, errEnded) {
			return err
		}
		return nil
	}
	if strings.Contains(said, "all") {
		id := "call_" + turn.ID()
		err := errors.Join(call(turn, id, "task", ""), a.delegates(ctx, id),
			feed("tool.output.delta", `{"call_id":%q,"text":"half "}`, id),
			ended(turn, id, true, "told"), feed("custom.progress", `{"done":1}`))
		if err != nil {
			return err
		}
		a.messages = append(a.messages,
			json.RawMessage(fmt.Sprintf(`{"type":"ai","id":"msg_%s","content":"","tool_calls":[{"id":%q,"name":"task","args":{"city":"Grüße 🌍"},"type":"tool_call"}]}`, id, id)),
			json.RawMessage(fmt.Sprintf(`{"type":"tool","id":"result_%s","content":"told","tool_call_id":%q,"name":"task"}`, id, id)))
	}
	if err := errors.Join(tells("msg_"+turn.ID(), "You say: "+said+". "+speech),
		feed("state.update", `{"node":"agent","values":{"n":1}}`),
		feed("task.end", `{"task_id":"task-%s","result":{"n":1}}`, turn.ID()), state()); err != nil {
		return err
	}
	if n := strings.Count(said, "ask") + 2*strings.Count(said, "two"); n > 0 {
		a.asked = map[string]string{}
		for i := range n {
			id := fmt.Sprintf("q%d", i+1)
			a.asked[id] = ""
			if err := feed("input.requested", `{"request_id":%q,"payload":{"question":"Which?"}}`, id); err != nil {
				return err
			}
		}
	}
	return errors.Join(turn.End("end_turn"), a.run.Flush(ctx))
}

// delegates has a child answer.
func (a *threadAgent) delegates(ctx context.Context, id string) error {
	lane, err := a.run.Spawn(ctx, "", "help", id)
	if err != nil {
		return err
	}
	work, err := lane.Turn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.say(work, "me"), lane.Emit(ctx, "custom.note", map[string]int{"x": 1}), work.End("end_turn"),
		lane.Finish(ctx))
}
