package demo

import (
	"cmp"
	"encoding/json"
	"fmt"

	"agentstream/producers/command"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// graph is what a LangGraph agent emits beside what it says: where it is, and the state that it has come to.
type graph struct {
	q     *worker.Task
	seq   schema.Seq // of the message: names what the turn emits
	input json.RawMessage
	heard []string // messages that came meanwhile
}

// graphOf returns the graph that answers a question; nil when it did not come by run.start, or answers such a run.
func graphOf(q *worker.Task) *graph {
	var f struct {
		Assistant json.RawMessage `json:"assistant_id"`
		Input     json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(q.Message.Event.Payload, &f) // what does not fit names none
	if f.Assistant == nil && len(q.Answers) == 0 {
		return nil
	}
	return &graph{q: q, seq: q.Message.Event.Seq, input: f.Input}
}

func (g *graph) emit(typ, format string, a ...any) error {
	return g.q.Run.Emit(g.q.Turn.Context(), typ, json.RawMessage(fmt.Sprintf(format, a...)))
}

// emitStart emits the checkpoint of the input, and the task of the one node.
func (g *graph) emitStart() error {
	if err := g.emit(schema.TypeCheckpoint, `{"checkpoint_id":"cp_%d_0","step":%d,"source":"input"}`, g.seq,
		g.seq); err != nil {
		return err
	}
	if err := g.emit(schema.TypeTaskStart, `{"task_id":"task_%d","name":"agent","input":%s}`, g.seq,
		cmp.Or(string(g.input), "null")); err != nil {
		return err
	}
	return g.emit("custom.status", `{"text":"the agent has begun"}`)
}

// addMessage works a message in that came meanwhile.
func (g *graph) addMessage(c *command.Command) {
	g.heard = append(g.heard, c.Text())
	g.q.Consume(c)
}

// emitEnd emits what the node has done, and the state that the graph has come to.
func (g *graph) emitEnd() error {
	heard, err := json.Marshal(append([]string{}, g.heard...))
	if err != nil {
		return err
	}
	answered := fmt.Sprintf(`{"answered":%d,"heard":%s}`, g.seq, heard)
	if err := g.emit(schema.TypeTaskEnd, `{"task_id":"task_%d","name":"agent","ok":true,"result":%s}`, g.seq,
		answered); err != nil {
		return err
	}
	if err := g.emit(schema.TypeStateUpdate, `{"node":"agent","values":%s}`, answered); err != nil {
		return err
	}
	if err := g.emit(schema.TypeCheckpoint, `{"checkpoint_id":"cp_%d_1","step":%d,"source":"loop"}`, g.seq,
		g.seq+1); err != nil {
		return err
	}
	messages, err := g.messages()
	if err != nil {
		return err
	}
	return g.emit(schema.TypeStateValues, `{"values":{"messages":%s,"answered":%d}}`, messages, g.seq)
}

// said is a message as graphs keep it.
type said struct {
	Type    string     `json:"type"`
	ID      string     `json:"id"`
	Content string     `json:"content"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
	Type string          `json:"type"`
}

// messages returns the conversation so far, a JSON list.
func (g *graph) messages() ([]byte, error) {
	f, err := g.q.Fold(g.q.Turn.Context())
	if err != nil {
		return nil, err
	}
	all := []said{}
	for _, m := range f.Messages {
		role := map[string]string{"user": "human", "assistant": "ai"}[m.Role]
		if m.Child != "" || role == "" || m.ID == "" || m.End == 0 {
			continue
		}
		one := said{Type: role, ID: m.ID}
		for _, b := range m.Blocks {
			if b.Kind == "text" {
				one.Content += b.Text.String()
			} else if b.Call != "" && b.Input != nil {
				one.Calls = append(one.Calls, toolCall{b.Call, b.Tool, b.Input, "tool_call"})
			}
		}
		all = append(all, one)
	}
	return json.Marshal(all)
}

// interrupt asks a person; the turn ends without the answer.
func (s *reply) interrupt() error {
	id := fmt.Sprintf("ask_%d", s.q.Message.Event.Seq)
	return s.q.Interrupt(s.ctx, json.RawMessage(fmt.Sprintf(`{"request_id":%q,"prompt":"May I go on?","options":["yes","no"]}`, id)))
}

// resume writes what was answered.
func (s *reply) resume() error {
	said := ""
	for _, a := range s.q.Answers {
		said += " " + string(a.Answer())
	}
	return s.sayAnswer("You have answered" + said + ". I go on.")
}
