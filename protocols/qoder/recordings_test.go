package qoder

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// expectation is what expected.json says of a recording, whatever the provider.
type expectation struct {
	Text, Reasoning, Refusal, RawReasoning providertest.Digest
	ToolCalls                              []expectedCall
	Streams                                []expectation // of transcripts that have several
	Choices                                []struct{ Text providertest.Digest }
}

type expectedCall struct {
	ID, Name string
	Input    any
}

// recorded returns the canonical events of each recording, and what is expected of it.
func recorded(t *testing.T) map[string]func(t *testing.T) ([]schema.Event, expectation) {
	decoders := map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder,
		"openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	}
	all := map[string]func(t *testing.T) ([]schema.Event, expectation){}
	for _, folder := range append(slices.Sorted(maps.Keys(decoders)), "transcripts") {
		want, read := providertest.Recordings[expectation](t, 4, folder)
		for name, w := range want {
			all[name] = func(t *testing.T) ([]schema.Event, expectation) {
				if d := decoders[folder]; d != nil {
					return providertest.Decode(t, d(provider.Config{}), read(name)), w
				}
				format := strings.Split(name, ".")[1]
				var events []schema.Event
				for e, err := range transcript.Decode(format, bytes.NewReader(read(name)), transcript.Config{}) {
					if err != nil {
						t.Fatal(err)
					}
					e.RunID, e.ChildID, e.ID, e.Path = "", "", "", nil
					events = append(events, e)
				}
				return events, w
			}
		}
	}
	if len(all) < 63 {
		t.Fatalf("only %d recordings", len(all))
	}
	return all
}

// reader is a client that knows nothing but the page on increments (seed 001): its parser checklist.
type reader struct {
	t        *testing.T
	messages map[string]*heard
	order    []*heard
	thoughts map[string][]string // of agent.thinking, by message
	calls    map[string][]any    // inputs of agent.tool_use, by the call's id, which transcripts use again
	full     int
	texts    []string // what each message says, once it was checked
	musings  []string // and thinks
}

// heard is a message as it was put together.
type heard struct {
	id      string
	blocks  map[int]*piece // by index
	open    map[int]bool
	stopped bool
	content []map[string]json.RawMessage // of agent.message; nil before
}

type piece struct {
	kind, call, name      string
	text, thinking, input strings.Builder
	signature             bool
}

// event is what such a client reads of any event.
type event struct {
	Type      string
	MessageID *string `json:"message_id"`
	Index     *int
	Block     struct{ Type, ID, Name string } `json:"content_block"`
	Delta     struct {
		Type        string
		Text        json.RawMessage
		Thinking    json.RawMessage
		PartialJSON string `json:"partial_json"`
		Signature   string
	}
	Content  []map[string]json.RawMessage
	Thinking string
	Input    any
	CallID   string `json:"call_id"`
}

func (r *reader) read(f shown) {
	t := r.t
	var e event
	if err := json.Unmarshal([]byte(f.data), &e); err != nil && !strings.HasPrefix(f.event, "user.") &&
		!strings.HasPrefix(f.event, "agent.tool_result") {
		t.Fatalf("%s: %v", f.data, err)
	}
	if f.event != e.Type {
		t.Errorf("SSE event %q, data.type %q", f.event, e.Type)
	}
	if e.Type == "agent.tool_use" || e.Type == "agent.custom_tool_use" || e.Type == "agent.mcp_tool_use" {
		r.calls[e.CallID] = append(r.calls[e.CallID], e.Input)
		return
	}
	if e.MessageID == nil {
		return
	}
	if e.Type == "agent.message_start" {
		m := &heard{id: *e.MessageID, blocks: map[int]*piece{}, open: map[int]bool{}}
		r.messages[*e.MessageID], r.order = m, append(r.order, m)
		return
	}
	if strings.HasPrefix(e.Type, "user.") || strings.HasPrefix(e.Type, "system.") {
		return
	}
	m := r.messages[*e.MessageID]
	if m == nil {
		t.Fatalf("%s without agent.message_start", f.data)
	}
	switch e.Type {
	case "agent.thinking":
		r.thoughts[m.id] = append(r.thoughts[m.id], e.Thinking)
	case "agent.message":
		if !m.stopped || m.content != nil {
			t.Errorf("agent.message of %s before its stop, or twice", m.id)
		}
		m.content = e.Content
		r.full++
	case "agent.message_stop":
		if m.stopped = true; len(m.open) > 0 {
			t.Errorf("message %s stopped with blocks %v open", m.id, m.open)
		}
	case "agent.message_delta":
	default:
		r.block(m, e)
	}
}

func (r *reader) block(m *heard, e event) {
	t := r.t
	if e.Index == nil || m.stopped {
		t.Fatalf("%s of a stopped message, or without index", e.Type)
	}
	b := m.blocks[*e.Index]
	if (b == nil) != (e.Type == "agent.content_block_start") {
		t.Fatalf("%s of block %d, which is %v", e.Type, *e.Index, b)
	}
	switch e.Type {
	case "agent.content_block_start":
		if len(m.blocks) != *e.Index {
			t.Errorf("block %d begins as the %dth", *e.Index, len(m.blocks))
		}
		m.blocks[*e.Index], m.open[*e.Index] = &piece{kind: e.Block.Type, call: e.Block.ID, name: e.Block.Name}, true
	case "agent.content_block_stop":
		delete(m.open, *e.Index)
	case "agent.content_block_delta":
		if !m.open[*e.Index] {
			t.Errorf("block %d is told behind its stop", *e.Index)
		}
		switch e.Delta.Type {
		case "text_delta":
			b.text.Write(inner(e.Delta.Text))
		case "thinking_delta":
			b.thinking.Write(inner(e.Delta.Thinking))
		case "input_json_delta":
			b.input.WriteString(e.Delta.PartialJSON)
		case "signature_delta":
			b.signature = e.Delta.Signature != ""
		case "tool_output_delta":
			t.Errorf("tool_output_delta is never sent")
		}
	default:
		t.Errorf("%s is no event of the page", e.Type)
	}
}

// decoded returns what JSON says between quotes.
func decoded(t *testing.T, in string) (s string) {
	t.Helper()
	if err := json.Unmarshal([]byte(`"`+in+`"`), &s); err != nil {
		t.Fatalf("pieces make no string: %v", err)
	}
	return s
}

// tested counts what was compared, so that nothing passes for being empty.
type tested struct{ messages, texts, thoughts, inputs, tools, signatures int }

// check compares what was put together with the full events.
func (r *reader) check(n *tested) (text, thinking string, calls map[string][]any) {
	t := r.t
	calls = map[string][]any{}
	for _, m := range r.order {
		if m.content == nil {
			t.Errorf("message %s has no agent.message", m.id)
			continue
		}
		n.messages++
		if len(m.content) != len(m.blocks) {
			t.Errorf("message %s: %d blocks, %d in the content", m.id, len(m.blocks), len(m.content))
			continue
		}
		var thoughts []string
		before, mused := len(text), len(thinking)
		for i, c := range m.content {
			b := m.blocks[i]
			switch kind := decoded(t, string(inner(c["type"]))); kind {
			case "text":
				said := decoded(t, b.text.String())
				if want := decoded(t, string(inner(c["text"]))); said != want || b.kind != "text" {
					t.Errorf("message %s block %d: pieces %.80q, content %.80q", m.id, i, said, want)
				}
				text += said
				n.texts++
			case "thinking":
				said := decoded(t, b.thinking.String())
				if want := decoded(t, string(inner(c["thinking"]))); said != want || b.kind != "thinking" {
					t.Errorf("message %s block %d: pieces %.80q, content %.80q", m.id, i, said, want)
				}
				thinking += said
				thoughts = append(thoughts, said)
				n.thoughts++
				if b.signature {
					n.signatures++
				}
			default:
				if b.kind != kind {
					t.Errorf("message %s block %d began as %s, and is %s", m.id, i, b.kind, kind)
				}
				if kind == "tool_use" || b.call != "" && c["input"] != nil {
					r.call(n, calls, b, c)
				}
			}
		}
		r.texts, r.musings = append(r.texts, text[before:]), append(r.musings, thinking[mused:])
		if !slices.Equal(thoughts, r.thoughts[m.id]) {
			t.Errorf("message %s: thoughts %.100q, agent.thinking %.100q", m.id, thoughts, r.thoughts[m.id])
		}
	}
	return text, thinking, calls
}

// call compares a call's input in pieces with that of the content and of the full agent.tool_use.
func (r *reader) call(n *tested, calls map[string][]any, b *piece, c map[string]json.RawMessage) {
	t := r.t
	n.inputs++
	if decoded(t, string(inner(c["id"]))) != b.call || decoded(t, string(inner(c["name"]))) != b.name {
		t.Errorf("call %s of %s is %s of %s", b.call, b.name, c["id"], c["name"])
	}
	said := b.input.String()
	if c["partial_json"] != nil {
		part := decoded(t, string(inner(c["partial_json"])))
		if text := ""; json.Unmarshal([]byte(said), &text) == nil {
			said = text // a tool whose input is text
		}
		if part != said {
			t.Errorf("call %s: pieces %.80q, of the cut input %.80q", b.call, said, part)
		}
		return
	}
	var want, got any
	if err := json.Unmarshal(c["input"], &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		t.Errorf("call %s: pieces make no JSON: %v", b.call, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("call %s: pieces %.80q, input %.80s", b.call, said, c["input"])
	}
	nth := len(calls[b.call])
	if full := r.calls[b.call]; nth >= len(full) || !reflect.DeepEqual(full[nth], want) {
		t.Errorf("call %s: agent.tool_use has %v, content %v", b.call, full, want)
	} else {
		n.tools++
	}
	calls[b.call] = append(calls[b.call], want)
}

// TestRecordings: of every recorded stream and transcript a client that reads increments has the same text,
// thoughts and inputs as one that reads the full events, and as the provider's own client has.
func TestRecordings(t *testing.T) {
	var n tested
	for name, load := range recorded(t) {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			events, want := load(t)
			list := records(t, schematest.Scenario{Name: name, Events: events})
			r := &reader{t: t, messages: map[string]*heard{}, thoughts: map[string][]string{}, calls: map[string][]any{}}
			ids := map[string]bool{}
			for _, f := range projected(t, true, form{}, list) {
				if ids[f.id] {
					t.Fatalf("id %s comes twice", f.id)
				}
				ids[f.id] = true
				r.read(f)
			}
			text, thinking, calls := r.check(&n)
			expect(t, want, r, text, thinking, calls)
		})
	}
	if n.messages < 119 || n.texts < 128 || n.thoughts < 32 || n.inputs < 101 || n.tools < 100 || n.signatures < 4 {
		t.Errorf("too little was compared: %+v", n)
	}
	t.Logf("%+v", n)
}

// expect compares with expected.json.
func expect(t *testing.T, want expectation, r *reader, text, thinking string, calls map[string][]any) {
	switch {
	case len(want.Streams) > 0:
		if len(r.texts) != len(want.Streams) {
			t.Fatalf("%d messages, want %d", len(r.texts), len(want.Streams))
		}
		for i, s := range want.Streams {
			want.ToolCalls = append(want.ToolCalls, s.ToolCalls...)
			if got := providertest.DigestOf(r.texts[i]); got != s.Text {
				t.Errorf("message %d: text %+v, want %+v", i, got, s.Text)
			}
			if got := providertest.DigestOf(r.musings[i]); got != s.Reasoning {
				t.Errorf("message %d: thoughts %+v, want %+v", i, got, s.Reasoning)
			}
		}
	default:
		if got := providertest.DigestOf(text); got != want.Text {
			t.Errorf("text %+v, want %+v", got, want.Text)
		}
		// Of transcripts nobody has said what the thoughts are: they are held to the full events alone.
		if got := providertest.DigestOf(thinking); want.Reasoning.SHA256 != "" && got != want.Reasoning &&
			got != want.RawReasoning {
			t.Errorf("thoughts %+v, want %+v", got, want.Reasoning)
		}
	}
	for _, c := range want.ToolCalls {
		if c.ID == "" || c.Input == nil { // one that the provider gave no id, or whose input is text
			continue
		}
		if !slices.ContainsFunc(calls[c.ID], func(got any) bool { return reflect.DeepEqual(got, c.Input) }) {
			t.Errorf("call %s of %s: inputs %v, want %v", c.ID, c.Name, calls[c.ID], c.Input)
		}
	}
}

// TestHostedCallsOnce: a hosted call whose output is an item of its own is one use and one result, which has the
// output.
func TestHostedCallsOnce(t *testing.T) {
	var body strings.Builder
	for _, frame := range []string{
		`{"type":"response.created","response":{"id":"r","status":"in_progress"}}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"id":"s","type":"shell_call","call_id":"c","status":"completed","action":{"commands":["ls"]},"environment":{"type":"container_auto"}}}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"id":"o","type":"shell_call_output","call_id":"c","status":"completed","output":[{"stdout":"notes"}]}}`,
		`{"type":"response.completed","response":{"id":"r","status":"completed"}}`,
	} {
		body.WriteString("data: " + frame + "\n\n")
	}
	events := providertest.Decode(t, openai.NewResponsesDecoder(provider.Config{}), []byte(body.String()))
	var told []string
	for _, f := range projected(t, true, form{}, records(t, schematest.Scenario{Name: "hosted", Events: events})) {
		if strings.HasPrefix(f.event, "agent.tool_") {
			told = append(told, f.event+" "+f.data)
		}
	}
	if len(told) != 2 || !strings.HasPrefix(told[0], "agent.tool_use ") ||
		!strings.HasPrefix(told[1], "agent.tool_result ") || !strings.Contains(told[1], "notes") {
		t.Errorf("%d frames:\n%s", len(told), strings.Join(told, "\n"))
	}
}
