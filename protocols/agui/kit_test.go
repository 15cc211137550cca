package agui

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write testdata")

// event is one with its id.
type event struct{ id, data string }

// framesOf are the events that a request is shown of records, up to the one that ends the stream.
func framesOf(t testing.TB, req dialect.Request, records []schema.Record) (list []event) {
	t.Helper()
	follow(t, Dialect{}.Projector(req).(*projector), records, func(f dialect.Frame) {
		list = append(list, event{string(f.Token), string(f.Data)})
	})
	return list
}

// follow hands the frames of records to show, up to the one that ends the stream, and reports whether there was one.
func follow(t testing.TB, p *projector, records []schema.Record, show func(dialect.Frame)) bool {
	t.Helper()
	var out dialect.Frames
	for _, r := range records {
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			t.Fatalf("seq %d: %v", r.Seq, err)
		}
		for _, f := range out.List {
			show(f)
			if f.Last {
				return true
			}
		}
	}
	return false
}

// responsesOf returns the responses of records.
func responsesOf(t testing.TB, records []schema.Record) (list []schema.Seq) {
	t.Helper()
	p := Dialect{}.Projector(dialect.Request{}).(*projector)
	for _, r := range records {
		if err := p.Project(nil, r); err != nil {
			t.Fatal(err)
		}
		span := p.chat.Spans.Find(dialect.SpanNewest)
		if span.First > 0 && !slices.Contains(list, span.First) {
			list = append(list, span.First)
		}
	}
	return list
}

// threadOf is the thread after so many records.
func threadOf(t testing.TB, records []schema.Record, n int) *thread {
	t.Helper()
	th := newThread()
	p := Dialect{}.Projector(dialect.Request{Run: "run_a", Form: formAll}).(*projector)
	for _, r := range records[:n] {
		if err := th.next(p, r); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

// receive does with an event what a client does, a snapshot included.
func (t *thread) receive(tb testing.TB, f dialect.Frame) {
	tb.Helper()
	switch jsonscan.DecodeString(schema.Field(f.Data, "type")) {
	case "MESSAGES_SNAPSHOT":
		*t = *newThread()
		for raw := range jsonscan.Elements(schema.Field(f.Data, "messages")) {
			var m struct {
				ID, Role, SubagentRunID, ToolCallID string
				Content, EncryptedValue             json.RawMessage
				ToolCalls                           []struct {
					ID       string
					Function struct {
						Name      string
						Arguments json.RawMessage
					}
				}
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				tb.Fatal(err)
			}
			e := &entity{id: m.ID, role: m.Role, lane: m.SubagentRunID, call: m.ToolCallID, sign: slices.Clone(m.EncryptedValue)}
			if m.Role == "user" {
				e.raw = slices.Clone(raw)
			}
			if m.Content != nil && m.Role != "user" {
				e.content = append([]byte{}, jsonscan.Inner(m.Content)...)
			}
			for _, c := range m.ToolCalls {
				e.calls = append(e.calls, &calling{id: c.ID, name: c.Function.Name,
					args: slices.Clone(jsonscan.Inner(c.Function.Arguments))})
				t.owners[c.ID] = e
			}
			t.put(e)
		}
	case "RUN_STARTED":
		for raw := range jsonscan.Elements(schema.Field(schema.Field(f.Data, "input"), "messages")) {
			t.put(&entity{id: jsonscan.DecodeString(schema.Field(raw, "id")), role: "user", raw: slices.Clone(raw)})
		}
	default:
		t.add(f.Data, string(f.Token))
	}
}

// rules is what the client holds a stream to.
type rules struct {
	running bool
	open    map[string]bool
	lanes   map[string]string // "open", "over"
}

func newRules() *rules { return &rules{open: map[string]bool{}, lanes: map[string]string{}} }

// check returns what is wrong with an event.
func (v *rules) check(data string) error {
	if !json.Valid([]byte(data)) {
		return fmt.Errorf("no JSON")
	}
	f := jsonscan.Fields(nil).Read([]byte(data))
	typ, lane := f.Str("type"), f.Str("subagentRunId")
	for name, value := range jsonscan.Members([]byte(data)) {
		if string(value) == "null" && string(name) != "value" && string(name) != "snapshot" {
			return fmt.Errorf("%s is null", name)
		}
	}
	if v.running == (typ == "RUN_STARTED") {
		return fmt.Errorf("it is out of a run, or begins one in another")
	}
	if lane != "" && typ != "SUBAGENT_STARTED" && v.lanes[lane] != "open" {
		return fmt.Errorf("subagent %s is %q", lane, v.lanes[lane])
	}
	switch typ {
	case "RUN_STARTED":
		v.running, v.lanes = true, map[string]string{}
	case "RUN_FINISHED", "RUN_ERROR":
		v.running = false
		for u := range jsonscan.Elements(f.Raw("usage")) {
			for name, n := range jsonscan.Members(u) {
				if string(name) != "model" && (n[0] == '-' || len(n) > 16) {
					return fmt.Errorf("%s is %s", name, n)
				}
			}
		}
		for id, open := range v.open {
			if open {
				return fmt.Errorf("%s is open", id)
			}
		}
		for id, state := range v.lanes {
			if state == "open" {
				return fmt.Errorf("subagent %s is open", id)
			}
		}
	case "SUBAGENT_STARTED":
		parent := f.Str("parentSubagentRunId")
		if v.lanes[lane] != "" || parent != "" && v.lanes[parent] == "" || f.Str("name") == "" {
			return fmt.Errorf("subagent %s is %q, the one above it %q", lane, v.lanes[lane], v.lanes[parent])
		}
		v.lanes[lane] = "open"
	case "SUBAGENT_FINISHED", "SUBAGENT_ERROR":
		v.lanes[lane] = "over"
	case "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM", "MESSAGES_SNAPSHOT", "REASONING_ENCRYPTED_VALUE":
	default:
		return v.part(typ, lane, f.Str("messageId")+f.Str("toolCallId"))
	}
	return nil
}

// part checks an event of something that opens and closes.
func (v *rules) part(typ, lane, id string) error {
	i := strings.LastIndexByte(typ, '_')
	key := lane + " " + typ[:i] + " " + id
	open := v.open[key]
	switch typ[i+1:] {
	case "START":
		v.open[key] = true
		open = !open
	case "END":
		v.open[key] = false
	case "CONTENT", "ARGS":
	default:
		return fmt.Errorf("no such event")
	}
	if !open {
		return fmt.Errorf("%s: it does not fit", key)
	}
	return nil
}
