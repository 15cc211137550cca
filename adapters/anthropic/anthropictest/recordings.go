package anthropictest

import (
	"reflect"
	"strings"
	"testing"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// Recordings returns the expectations of the recorded streams by name (anthropic/FILE) and a way to read one.
func Recordings(t testing.TB) (map[string]Expectation, func(string) []byte) {
	t.Helper()
	return providertest.Recordings[Expectation](t, 19, "anthropic")
}

// Expectation is what the provider's own client libraries make of one recording.
type Expectation struct {
	MessageIDs                       []string `json:"messageIds"`
	Models                           []string
	Text, Reasoning                  providertest.Digest
	Signatures                       int
	ToolCalls, OpenToolCalls         []ExpectedCall
	Blocks                           []struct{ Type string }
	StopReason, StopSequence         *string
	StopDetails, Usage, Error        any
	Framing                          struct{ Frames int }
	OpenBlocksAtEnd, AbandonedBlocks int
}

// ExpectedCall is one tool call.
type ExpectedCall struct {
	ID, Name, Kind string
	Input          any
	InputComplete  bool
	RawInput       providertest.Digest
}

// AnthropicOutcome is what a reader of the canonical events knows in the end.
type AnthropicOutcome struct {
	Messages, Models []string
	Text, Reasoning  string
	Calls, Open      []ExpectedCall
	Kinds            []string
	Signatures       int
	Stop, Sequence   *string
	Details, Usage   any
	Err              any
}

// FromFold puts the events together as any reader of the log does.
func FromFold(t testing.TB, events []schema.Event) AnthropicOutcome {
	t.Helper()
	var f schema.Fold
	var o AnthropicOutcome
	kind := map[string]string{}
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		if e.Type != schema.TypeToolStart && e.Type != schema.TypeBlockEnd && e.Type != schema.TypeMessageEnd {
			continue
		}
		p := providertest.Object(t, e.Payload)
		switch e.Type {
		case schema.TypeToolStart:
			kind[p["call_id"].(string)] = p["kind"].(string)
		case schema.TypeBlockEnd:
			if p["signature"] != nil {
				o.Signatures++
			}
		case schema.TypeMessageEnd:
			o.Stop, o.Sequence, o.Details, o.Usage = providertest.Text(p["stop_reason"]), providertest.Text(p["stop_sequence"]), p["stop_details"], p["usage"]
			if p["error"] != nil {
				o.Err = p["error"]
			}
		}
	}
	o.Text, o.Reasoning = f.Text("", "text"), f.Text("", "reasoning")
	for _, m := range f.Messages {
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
		o.Messages, o.Models = append(o.Messages, m.ID), append(o.Models, m.Model)
		for _, b := range m.Blocks {
			o.Kinds = append(o.Kinds, strings.Replace(b.Kind, "reasoning", "thinking", 1))
			if b.Call == "" || b.Tool == "" {
				continue
			}
			c := ExpectedCall{ID: b.Call, Name: b.Tool, Kind: b.Kind, InputComplete: b.Complete,
				RawInput: providertest.DigestOf(b.Text.String())}
			if !b.Complete {
				o.Open = append(o.Open, c)
				continue
			}
			if kind[b.Call] != b.Kind {
				t.Errorf("tool.start says kind %q, block.start %q", kind[b.Call], b.Kind)
			}
			c.Input = providertest.Value(t, b.Input)
			o.Calls = append(o.Calls, c)
		}
	}
	for _, c := range f.Calls {
		if i := indexOf(o.Calls, c.ID); i >= 0 && !reflect.DeepEqual(providertest.Value(t, c.Input), o.Calls[i].Input) {
			t.Errorf("tool.start of %s has another input", c.ID)
		}
	}
	return o
}

func indexOf(calls []ExpectedCall, id string) int {
	for i, c := range calls {
		if c.ID == id {
			return i
		}
	}
	return -1
}

// FromContent reads message.end alone, which is what a reader has that skipped the deltas.
func FromContent(t testing.TB, events []schema.Event) AnthropicOutcome {
	t.Helper()
	var o AnthropicOutcome
	for _, e := range events {
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		for _, item := range providertest.Object(t, e.Payload)["content"].([]any) {
			b := item.(map[string]any)
			kind := b["type"].(string)
			o.Kinds = append(o.Kinds, kind)
			switch {
			case kind == "text":
				o.Text += b["text"].(string)
			case kind == "thinking":
				o.Reasoning += b["thinking"].(string)
				if b["signature"] != nil && b["signature"] != "" {
					o.Signatures++
				}
			case strings.HasSuffix(kind, "tool_use"):
				c := ExpectedCall{ID: b["id"].(string), Name: b["name"].(string), Kind: kind, Input: b["input"]}
				if partial, cut := b["partial_json"]; cut {
					c.RawInput, c.Input = providertest.DigestOf(partial.(string)), nil
					o.Open = append(o.Open, c)
				} else {
					o.Calls = append(o.Calls, c)
				}
			}
		}
	}
	return o
}

// Check holds the canonical events of one recorded stream to what is expected of it: assembled by a
// fold over all of them, and independently from the content of message.end alone.
func Check(t *testing.T, events []schema.Event, w Expectation) {
	t.Helper()
	folded, content := FromFold(t, events), FromContent(t, events)
	for how, got := range map[string]AnthropicOutcome{"fold": folded, "content": content} {
		if d := providertest.DigestOf(got.Text); d != w.Text {
			t.Errorf("%s: text %+v, want %+v", how, d, w.Text)
		}
		if d := providertest.DigestOf(got.Reasoning); d != w.Reasoning {
			t.Errorf("%s: reasoning %+v, want %+v", how, d, w.Reasoning)
		}
		if got.Signatures != w.Signatures {
			t.Errorf("%s: %d signatures, want %d", how, got.Signatures, w.Signatures)
		}
		compareCalls(t, how, got, w)
	}
	if !reflect.DeepEqual(folded.Messages, w.MessageIDs) || !reflect.DeepEqual(folded.Models, w.Models) {
		t.Errorf("messages %v of %v, want %v of %v", folded.Messages, folded.Models, w.MessageIDs, w.Models)
	}
	var kinds []string
	for _, b := range w.Blocks {
		kinds = append(kinds, b.Type)
	}
	if n := len(folded.Kinds) - w.OpenBlocksAtEnd; !reflect.DeepEqual(folded.Kinds[:n], kinds) ||
		!reflect.DeepEqual(content.Kinds, folded.Kinds) {
		t.Errorf("blocks %v\ncontent %v\nwant %v", folded.Kinds, content.Kinds, kinds)
	}
	if !reflect.DeepEqual(folded.Stop, w.StopReason) || !reflect.DeepEqual(folded.Sequence, w.StopSequence) ||
		!reflect.DeepEqual(folded.Details, w.StopDetails) {
		t.Errorf("stop %v %v %v", folded.Stop, folded.Sequence, folded.Details)
	}
	if !reflect.DeepEqual(folded.Usage, w.Usage) {
		t.Errorf("usage\n got %v\nwant %v", folded.Usage, w.Usage)
	}
	if !reflect.DeepEqual(folded.Err, w.Error) {
		t.Errorf("error %v, want %v", folded.Err, w.Error)
	}
}

func compareCalls(t *testing.T, how string, got AnthropicOutcome, w Expectation) {
	t.Helper()
	if len(got.Calls) != len(w.ToolCalls) || len(got.Open) != len(w.OpenToolCalls) {
		t.Fatalf("%s: %d calls and %d open, want %d and %d", how, len(got.Calls), len(got.Open), len(w.ToolCalls),
			len(w.OpenToolCalls))
	}
	for i, c := range got.Calls {
		wc := w.ToolCalls[i]
		if how == "content" { // it has the input, not its spelling
			c.RawInput, c.InputComplete = wc.RawInput, wc.InputComplete
		}
		if !reflect.DeepEqual(c, wc) {
			t.Errorf("%s: call %d\n got %+v\nwant %+v", how, i, c, wc)
		}
	}
	for i, c := range got.Open {
		if !reflect.DeepEqual(c, w.OpenToolCalls[i]) {
			t.Errorf("%s: open call %d\n got %+v\nwant %+v", how, i, c, w.OpenToolCalls[i])
		}
	}
}
