package openaitest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// OpenAIOutcome is what a reader of the canonical events knows in the end.
type OpenAIOutcome struct {
	Messages, Models        []string
	Text, Refusal           string
	Reasoning, RawReasoning string
	Calls                   []ExpectedCall // of the client's tools; one that is not complete has no input
	Items                   []string
	// Of the last message.
	Stop, Finish, Status *string
	Incomplete           bool
	Usage, Err           any
	Logprobs             int
}

// clientTools are the kinds of calls that the client runs.
var clientTools = []string{"function", "custom", "function_call", "custom_tool_call"}

// FromFold puts the events together as any reader of the log does.
func FromFold(t testing.TB, events []schema.Event) OpenAIOutcome {
	t.Helper()
	var f schema.Fold
	var o OpenAIOutcome
	kind := map[string]string{}
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		switch e.Type {
		case schema.TypeToolStart:
			p := providertest.Object(t, e.Payload)
			kind[p["call_id"].(string)] = p["kind"].(string)
		case schema.TypeMessageEnd:
			o.readEnd(providertest.Object(t, e.Payload))
		case "custom.openai.logprobs":
			o.Logprobs++
		}
	}
	o.Text, o.Refusal = f.Text("", "text"), f.Text("", "refusal")
	for _, m := range f.Messages {
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
		o.Messages, o.Models = append(o.Messages, m.ID), append(o.Models, m.Model)
		for _, b := range m.Blocks {
			switch {
			case b.Kind == "reasoning" && b.Raw != nil && providertest.Object(t, b.Raw)["type"] == "reasoning_text":
				o.RawReasoning += b.Text.String()
			case b.Kind == "reasoning":
				o.Reasoning += b.Text.String()
			case b.Kind == "tool_use":
				c := ExpectedCall{ID: b.Call, Name: b.Tool, Kind: kind[b.Call], InputComplete: b.Complete,
					RawInput: providertest.DigestOf(b.Text.String())}
				if b.Complete {
					c.Input = providertest.Value(t, b.Input)
				}
				o.Calls = append(o.Calls, c)
			}
		}
	}
	for _, c := range f.Calls {
		i := slices.IndexFunc(o.Calls, func(k ExpectedCall) bool { return k.ID == c.ID })
		if i >= 0 && !reflect.DeepEqual(providertest.Value(t, c.Input), o.Calls[i].Input) {
			t.Errorf("tool.start of %s has another input", c.ID)
		}
	}
	return o
}

// readEnd reads the end of a message.
func (o *OpenAIOutcome) readEnd(p map[string]any) {
	o.Stop, o.Finish, o.Status, o.Usage, o.Err = providertest.Text(p["stop_reason"]), providertest.Text(p["finish_reason"]), providertest.Text(p["status"]), p["usage"], p["error"]
	o.Incomplete = p["incomplete"] == true
}

// FromContent reads message.end alone, which is what a reader has that skipped the deltas.
func FromContent(t testing.TB, events []schema.Event) OpenAIOutcome {
	t.Helper()
	var o OpenAIOutcome
	for _, e := range events {
		if e.Type == schema.TypeMessageEnd {
			p := providertest.Object(t, e.Payload)
			o.readEnd(p)
			o.content(p["content"].([]any))
		}
	}
	return o
}

// content adds the blocks of one message or choice.
func (o *OpenAIOutcome) content(list []any) {
	item := ""
	for _, v := range list {
		b := v.(map[string]any)
		switch kind := b["type"].(string); kind {
		case "text":
			o.Text += b["text"].(string)
		case "refusal":
			o.Refusal += b["refusal"].(string)
		case "thinking":
			if s, ok := b["thinking"].(string); ok {
				o.Reasoning += s
			}
		case "reasoning_text":
			o.RawReasoning += b["text"].(string)
		case "tool_use":
			_, cut := b["partial_json"]
			c := ExpectedCall{ID: b["id"].(string), Name: b["name"].(string), Input: b["input"], InputComplete: !cut}
			if cut {
				c.Input = nil
			}
			o.Calls = append(o.Calls, c)
		}
		id, _ := b["item_id"].(string)
		if id == "" {
			id, _ = b["id"].(string)
		}
		if id != item {
			o.Items = append(o.Items, id)
		}
		item = id
	}
}

// Check holds the canonical events of the recorded stream of a name to what is expected of it:
// assembled by a fold over all of them, and independently from message.end alone.
func Check(t *testing.T, name string, events []schema.Event) {
	t.Helper()
	all, _ := Recordings(t)
	w, ok := all[name]
	if !ok {
		t.Fatalf("there is no recording %s", name)
	}
	folded, content := FromFold(t, events), FromContent(t, events)
	for how, got := range map[string]OpenAIOutcome{"fold": folded, "content": content} {
		compareTexts(t, how, got, w.Text, w.Refusal, w.Reasoning, w.RawReasoning)
		compareCalls(t, how, got.Calls, w.ToolCalls)
		if !reflect.DeepEqual(got.Usage, w.Usage) {
			t.Errorf("%s: usage\n got %v\nwant %v", how, got.Usage, w.Usage)
		}
		if !reflect.DeepEqual(got.Err, w.Error) {
			t.Errorf("%s: error\n got %v\nwant %v", how, got.Err, w.Error)
		}
	}
	if n := len(folded.Messages); n != max(w.Responses, 1) || folded.Messages[n-1] != w.ID ||
		folded.Models[n-1] != w.Model {
		t.Errorf("messages %v of %v, want %s of %s", folded.Messages, folded.Models, w.ID, w.Model)
	}
	if Chat(name) {
		checkChat(t, events, folded, w)
	} else {
		checkResponse(t, folded, content, w)
	}
}

func checkChat(t *testing.T, events []schema.Event, folded OpenAIOutcome, w Expectation) {
	t.Helper()
	if !reflect.DeepEqual(folded.Finish, w.StopReason) {
		t.Errorf("finish reason %v, want %v", show(folded.Finish), show(w.StopReason))
	}
	common := map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
	if folded.Refusal != "" {
		common["stop"] = "refusal"
	}
	if w.StopReason != nil && w.Error == nil &&
		(folded.Stop == nil || *folded.Stop != common[*w.StopReason]) {
		t.Errorf("stop reason %v for %s", show(folded.Stop), *w.StopReason)
	}
	var others []any
	for _, e := range events {
		if e.Type == schema.TypeMessageEnd {
			others, _ = providertest.Object(t, e.Payload)["choices"].([]any)
		}
	}
	if len(others) != len(w.Choices)-1 || folded.Logprobs != w.Choices[0].LogprobChunks {
		t.Fatalf("%d choices beside the first and %d log probabilities, want %d and %d", len(others), folded.Logprobs,
			len(w.Choices)-1, w.Choices[0].LogprobChunks)
	}
	for i, wc := range w.Choices[1:] {
		p := others[i].(map[string]any)
		var o OpenAIOutcome
		o.readEnd(p)
		o.content(p["content"].([]any))
		compareTexts(t, "choice", o, wc.Text, wc.Refusal, wc.Reasoning, providertest.DigestOf(""))
		compareCalls(t, "content", o.Calls, wc.ToolCalls)
		if p["index"] != float64(wc.Index) || !reflect.DeepEqual(o.Finish, wc.FinishReason) {
			t.Errorf("choice %v ends with %v, want %d with %v", p["index"], show(o.Finish), wc.Index, show(wc.FinishReason))
		}
		if got := providertest.DigestOf(joinChoice(t, events, wc.Index)); got != wc.Text {
			t.Errorf("the pieces of choice %d say %+v, want %+v", wc.Index, got, wc.Text)
		}
	}
}

// joinChoice joins the text of a choice that is not the first one from its pieces.
func joinChoice(t *testing.T, events []schema.Event, index int) (out string) {
	for _, e := range events {
		if e.Type == "custom.openai.choice" {
			if p := providertest.Object(t, e.Payload); p["index"] == float64(index) {
				delta, _ := p["delta"].(map[string]any)
				s, _ := delta["content"].(string)
				out += s
			}
		}
	}
	return out
}

func checkResponse(t *testing.T, folded, content OpenAIOutcome, w Expectation) {
	t.Helper()
	if folded.Status == nil || "response."+*folded.Status != *w.StopReason {
		t.Errorf("status %v, want %v", show(folded.Status), *w.StopReason)
	}
	want := "end_turn"
	switch last := len(w.Items) - 1; {
	case w.Error != nil:
		want = "error"
	case slices.Contains(clientTools, w.Items[last].Type):
		want = "tool_use"
	}
	if folded.Stop == nil || *folded.Stop != want {
		t.Errorf("stop reason %v, want %s", show(folded.Stop), want)
	}
	var items []string
	for _, it := range w.Items {
		items = append(items, it.ID)
	}
	if !slices.Equal(content.Items, items) {
		t.Errorf("items %s\nwant %s", content.Items, items)
	}
	if w.DoneText != w.Text {
		t.Error("the recording contradicts itself")
	}
}

func compareTexts(t *testing.T, how string, got OpenAIOutcome, w, refusal, reasoning, raw providertest.Digest) {
	t.Helper()
	for what, pair := range map[string][2]providertest.Digest{
		"text": {providertest.DigestOf(got.Text), w}, "refusal": {providertest.DigestOf(got.Refusal), refusal},
		"reasoning":     {providertest.DigestOf(got.Reasoning), reasoning},
		"raw reasoning": {providertest.DigestOf(got.RawReasoning), raw},
	} {
		if pair[1] == (providertest.Digest{}) {
			pair[1] = providertest.DigestOf("")
		}
		if pair[0] != pair[1] {
			t.Errorf("%s: %s %+v, want %+v", how, what, pair[0], pair[1])
		}
	}
}

func compareCalls(t *testing.T, how string, got, want []ExpectedCall) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d calls, want %d", how, len(got), len(want))
	}
	for i, c := range got {
		w := want[i]
		c.ItemID = w.ItemID // checked with the items
		if how == "content" {
			c.Kind, c.RawInput = w.Kind, w.RawInput // it has the input, not its spelling
		}
		if s, ok := c.Input.(string); ok && strings.HasPrefix(w.Kind, "custom") { // free text
			if c.Input = nil; providertest.DigestOf(s) != w.RawInput {
				t.Errorf("%s: call %d has the input %q", how, i, s)
			}
		}
		if !reflect.DeepEqual(c, w) {
			t.Errorf("%s: call %d\n got %+v\nwant %+v", how, i, c, w)
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
