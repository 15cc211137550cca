package metistest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// State is what a client shows of one session.
type State struct {
	Turn     *Turn            `json:"turn"` // the newest; null before the first
	Messages []*ClientMessage `json:"messages"`
	Tools    []*Tool          `json:"tools"`
	Errors   []string         `json:"errors"` // classes of failed calls of a model
	Ended    string           `json:"ended"`  // disposition; "" while the session goes on

	// Workers are the sessions of workers that the stream shows, as far as it does.
	Workers map[string]*State `json:"workers"`
	// Delegates are the workers that were sent out, by session.
	Delegates map[string]string `json:"delegates"`
}

// Turn is a turn as the newest event of it says.
type Turn struct {
	ID    string `json:"id"`
	State string `json:"state"` // in_flight, completed, cancelled
}

// ClientMessage is one message.
type ClientMessage struct {
	ID     string           `json:"id"`
	Role   string           `json:"role"`
	Status string           `json:"status"` // partial, complete, cancelled, error
	Blocks []map[string]any `json:"blocks"`
}

// Tool is a call of a tool.
type Tool struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// State is asked, ready, waiting (for a person), running, done, or the error class of one that failed.
	State string `json:"state"`
}

// Fold makes a State of frames.
type Fold struct {
	State
	Session  string // that the client is attached to
	Last     string // id of the newest event, the cursor
	Snapshot string // id up to which the snapshot was
	// Replaced are messages whose final content was not what was streamed (5.3), and Skipped counts events of types
	// that the client does not know (9.2).
	Replaced []string
	Skipped  int
}

// Event is the envelope of events.
type Event struct {
	ID        string          `json:"id"`
	Timestamp string          `json:"timestamp"`
	Session   string          `json:"session_id"`
	Turn      *string         `json:"turn_id"`
	Parent    *string         `json:"parent_event_id"`
	Type      string          `json:"type"`
	Actor     string          `json:"actor"`
	Payload   json.RawMessage `json:"payload"`
}

// Payload is what a client reads of payloads, of all types together.
type Payload struct {
	MessageID     string           `json:"message_id"`
	Role          string           `json:"role"`
	Index         int              `json:"content_block_index"`
	Text          string           `json:"text"`
	Signature     *string          `json:"signature"`
	ToolUseID     string           `json:"tool_use_id"`
	ToolName      string           `json:"tool_name"`
	PartialJSON   string           `json:"partial_json"`
	FinalInput    any              `json:"final_input"`
	FinalContent  []map[string]any `json:"final_content"`
	OmittedBytes  int              `json:"omitted_bytes"`
	StopReason    string           `json:"stop_reason"`
	ErrorClass    string           `json:"error_class"`
	Decision      string           `json:"decision"`
	RequestID     string           `json:"confirmation_request_id"`
	WorkerSession string           `json:"worker_session_id"`
	FailureMode   string           `json:"failure_mode"`
	Disposition   string           `json:"disposition"`
	Reason        string           `json:"reason"`
	ReasonText    string           `json:"reason_text"`
	ChosenModel   string           `json:"chosen_model"`
}

// Frame takes the next frame. The error says what the server broke: an event twice, one that the snapshot has, or one
// out of the order of ids, which is that of events (catalog 4.1).
func (f *Fold) Frame(frame []byte) error {
	var m struct {
		Type     string
		Event    Event
		At       string `json:"snapshot_at_event_id"`
		Session  map[string]any
		Messages []struct {
			ID, Role string
			Content  []map[string]any
			Metadata struct{ Status string }
		}
	}
	if err := json.Unmarshal(frame, &m); err != nil {
		return fmt.Errorf("frame %.200s: %w", frame, err)
	}
	switch m.Type {
	case "snapshot":
		f.State = State{}
		f.Snapshot, f.Last = m.At, m.At
		if turn, ok := m.Session["current_turn_id"].(string); ok {
			f.State.Turn = &Turn{turn, "in_flight"}
		}
		for _, s := range m.Messages {
			f.State.Messages = append(f.State.Messages, &ClientMessage{s.ID, s.Role, s.Metadata.Status, s.Content})
		}
	case "event":
		e := m.Event
		if e.ID <= f.Last {
			return fmt.Errorf("event %s came behind %s", e.ID, f.Last)
		}
		f.Last = e.ID
		return f.event(&e)
	}
	return nil
}

func (f *Fold) event(e *Event) error {
	var p Payload
	if err := json.Unmarshal(e.Payload, &p); err != nil && isKnown(e.Type) {
		return fmt.Errorf("event %s %s: %w", e.Type, e.Payload, err)
	}
	s := &f.State
	if e.Session != f.Session {
		if s.Workers == nil {
			s.Workers = map[string]*State{}
		}
		if s.Workers[e.Session] == nil {
			s.Workers[e.Session] = &State{}
		}
		s = s.Workers[e.Session]
	}
	switch domain, _, _ := strings.Cut(e.Type, "."); domain {
	case "message", "text", "thinking":
		if s.message(e.Type, &p) {
			f.Replaced = append(f.Replaced, p.MessageID)
		}
	case "tool":
		if strings.HasPrefix(e.Type, "tool.use_") {
			s.message(e.Type, &p)
		}
		s.tool(e.Type, &p)
	case "turn":
		s.turn(e)
	case "llm":
		if e.Type == "llm.call_failed" {
			s.Errors = append(s.Errors, p.ErrorClass)
		}
	case "session":
		s.Ended = p.Disposition // "" of the others
	case "delegate":
		if s.Delegates == nil {
			s.Delegates = map[string]string{}
		}
		s.Delegates[p.WorkerSession] = map[string]string{"delegate.started": "running", "delegate.completed": "done",
			"delegate.failed": p.FailureMode}[e.Type]
	default:
		if !isKnown(e.Type) {
			f.Skipped++
		}
	}
	return nil
}

// isKnown reports whether a client of this version knows a type.
func isKnown(typ string) bool {
	domain, _, _ := strings.Cut(typ, ".")
	return strings.Contains(" message text thinking tool turn llm session delegate route routing skill memory feedback pattern ", " "+domain+" ")
}

func (s *State) turn(e *Event) {
	var id string
	if e.Turn != nil {
		id = *e.Turn
	}
	states := map[string]string{"turn.started": "in_flight", "turn.completed": "completed", "turn.cancelled": "cancelled"}
	s.Turn = &Turn{id, states[e.Type]}
}

// message takes what belongs to a message, and reports whether its final content was another than what was streamed.
func (s *State) message(typ string, p *Payload) (replaced bool) {
	m := s.slot(p.MessageID)
	switch typ {
	case "text.delta":
		b := m.block(p.Index, "text")
		b["text"] = b["text"].(string) + p.Text
	case "thinking.delta":
		b := m.block(p.Index, "thinking")
		b["text"] = b["text"].(string) + p.Text
		if p.Signature != nil {
			b["signature"] = *p.Signature
		}
	case "tool.use_start":
		b := m.block(p.Index, "tool_use")
		b["id"], b["name"], b["partial_json"] = p.ToolUseID, p.ToolName, ""
		delete(b, "text")
	case "tool.use_input_delta":
		b := m.block(p.Index, "tool_use")
		partial, _ := b["partial_json"].(string)
		b["partial_json"] = partial + p.PartialJSON
	case "tool.use_end":
		b := m.block(p.Index, "tool_use")
		b["input"] = p.FinalInput
		delete(b, "partial_json")
	case "message.complete":
		m.Status = map[string]string{"cancelled": "cancelled", "error": "error"}[p.StopReason]
		if m.Status == "" {
			m.Status = "complete"
		}
		if p.OmittedBytes > 0 {
			return false
		}
		replaced = !reflect.DeepEqual(plain(m.Blocks), plain(p.FinalContent))
		m.Blocks = p.FinalContent
	}
	return replaced
}

// slot returns the message with an id, a new one at the end where there is none.
func (s *State) slot(id string) *ClientMessage {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].ID == id {
			return s.Messages[i]
		}
	}
	m := &ClientMessage{ID: id, Role: "assistant", Status: "partial"}
	s.Messages = append(s.Messages, m)
	return m
}

// block returns the block at an index, and makes those before it.
func (m *ClientMessage) block(i int, typ string) map[string]any {
	for len(m.Blocks) <= i {
		m.Blocks = append(m.Blocks, nil)
	}
	if b := m.Blocks[i]; b == nil || b["type"] != typ {
		m.Blocks[i] = map[string]any{"type": typ, "text": ""}
	}
	if typ == "tool_use" {
		delete(m.Blocks[i], "text")
	}
	return m.Blocks[i]
}

// plain leaves out blocks that cannot be streamed, those without a text, of which nothing is, and members that are
// null.
func plain(blocks []map[string]any) (out []map[string]any) {
	for _, b := range blocks {
		if t := b["type"]; t != "text" && t != "thinking" && t != "tool_use" {
			continue
		}
		if b["type"] != "tool_use" && b["text"] == "" && b["signature"] == nil {
			continue
		}
		c := map[string]any{}
		for name, v := range b {
			if v != nil {
				c[name] = v
			}
		}
		out = append(out, c)
	}
	return out
}

func (s *State) tool(typ string, p *Payload) {
	states := map[string]string{"tool.use_start": "asked", "tool.use_end": "ready", "tool.called": "running",
		"tool.completed": "done",
		"tool.failed":    p.ErrorClass, "tool.confirmation_requested": "waiting", "tool.confirmation_resolved": "ready"}
	state := states[typ]
	if state == "" {
		return
	}
	for _, t := range s.Tools {
		if t.ID == p.ToolUseID {
			t.State = state
			return
		}
	}
	s.Tools = append(s.Tools, &Tool{p.ToolUseID, p.ToolName, state})
}
