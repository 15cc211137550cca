package geminitest

import (
	"reflect"
	"testing"

	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// GeminiOutcome is what a reader of the canonical events knows of one message in the end.
type GeminiOutcome struct {
	Model           string
	Text, Reasoning string
	Calls, Open     []MadeCall
	Others          map[string]int // blocks of the provider's own kinds
	Signatures      int
	Stop, Finish    *string
	Usage, Err      any
	Feedback        any
}

// MadeCall is one tool call as events have it.
type MadeCall struct {
	ID, Name string
	Input    any
	Deltas   string // joined input deltas; "" from the content
}

// FromFold puts the events together as any reader of the log does, one outcome for each message.
func FromFold(t testing.TB, events []schema.Event) []GeminiOutcome {
	t.Helper()
	var f schema.Fold
	var ends []map[string]any
	signatures := []int{}
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		switch e.Type {
		case schema.TypeMessageStart:
			signatures = append(signatures, 0)
		case schema.TypeBlockEnd:
			if providertest.Object(t, e.Payload)["signature"] != nil {
				signatures[len(signatures)-1]++
			}
		case schema.TypeMessageEnd:
			ends = append(ends, providertest.Object(t, e.Payload))
		}
	}
	if len(ends) != len(f.Messages) {
		t.Fatalf("%d messages begin and %d end", len(f.Messages), len(ends))
	}
	out := make([]GeminiOutcome, len(f.Messages))
	for i, m := range f.Messages {
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
		o := ending(ends[i])
		o.Model, o.Signatures = m.Model, signatures[i]
		for _, b := range m.Blocks {
			switch {
			case b.Kind == "text":
				o.Text += b.Text.String()
			case b.Kind == "reasoning":
				o.Reasoning += b.Text.String()
			case b.Kind != "tool_use":
				o.Others[b.Kind]++
			case !b.Complete:
				o.Open = append(o.Open, MadeCall{b.Call, b.Tool, nil, b.Text.String()})
			default:
				o.Calls = append(o.Calls, MadeCall{b.Call, b.Tool, providertest.Value(t, b.Input), b.Text.String()})
				checkStart(t, &f, b)
			}
		}
		out[i] = o
	}
	return out
}

// checkStart wants a tool.start with the input that the block ended with.
func checkStart(t testing.TB, f *schema.Fold, b *schema.FoldBlock) {
	t.Helper()
	for _, c := range f.Calls {
		if c.ID == b.Call && c.Tool == b.Tool &&
			reflect.DeepEqual(providertest.Value(t, c.Input), providertest.Value(t, b.Input)) {
			return
		}
	}
	t.Errorf("no tool.start of call %s has its input", b.Call)
}

func ending(end map[string]any) GeminiOutcome {
	return GeminiOutcome{Others: map[string]int{}, Stop: providertest.Text(end["stop_reason"]),
		Finish: providertest.Text(end["finish_reason"]), Usage: end["usage"],
		Err: end["error"], Feedback: end["promptFeedback"]}
}

// FromContent reads message.end alone, which is what a reader has that skipped the deltas.
func FromContent(t testing.TB, events []schema.Event) []GeminiOutcome {
	t.Helper()
	var out []GeminiOutcome
	model := ""
	for _, e := range events {
		if e.Type == schema.TypeMessageStart {
			model, _ = providertest.Object(t, e.Payload)["model"].(string)
		}
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		end := providertest.Object(t, e.Payload)
		o := ending(end)
		o.Model = model
		for _, item := range end["content"].([]any) {
			b := item.(map[string]any)
			if b["signature"] != nil {
				o.Signatures++
			}
			switch kind := b["type"].(string); kind {
			case "text":
				o.Text += b["text"].(string)
			case "thinking":
				o.Reasoning += b["thinking"].(string)
			case "tool_use":
				if _, cut := b["partial_json"]; cut {
					o.Open = append(o.Open, MadeCall{ID: b["id"].(string), Name: b["name"].(string)})
				} else {
					o.Calls = append(o.Calls, MadeCall{ID: b["id"].(string), Name: b["name"].(string), Input: b["input"]})
				}
			default:
				o.Others[kind]++
			}
		}
		out = append(out, o)
	}
	return out
}

// Check holds the canonical events of a recorded answer to what is expected of it.
func Check(t testing.TB, name string, events []schema.Event) {
	t.Helper()
	all, _ := Recordings(t)
	w, ok := all[name]
	if !ok {
		t.Fatalf("no recording %s", name)
	}
	Compare(t, events, w)
}

// Compare holds events to expectations, one for each message: assembled by a fold over all of them, and
// independently from the content of message.end alone.
func Compare(t testing.TB, events []schema.Event, want ...Expectation) {
	t.Helper()
	for how, list := range map[string][]GeminiOutcome{"fold": FromFold(t, events), "content": FromContent(t, events)} {
		if len(list) != len(want) {
			t.Fatalf("%s: %d messages, want %d", how, len(list), len(want))
		}
		for i, w := range want {
			compare(t, how, list[i], w)
		}
	}
}

func compare(t testing.TB, how string, got GeminiOutcome, w Expectation) {
	t.Helper()
	if d := providertest.DigestOf(got.Text); d != w.Text {
		t.Errorf("%s: text %+v, want %+v", how, d, w.Text)
	}
	if d := providertest.DigestOf(got.Reasoning); d != w.Reasoning {
		t.Errorf("%s: reasoning %+v, want %+v", how, d, w.Reasoning)
	}
	if got.Signatures != w.Signatures || len(got.Open) > 0 != w.DanglingCall {
		t.Errorf("%s: %d signatures, want %d; open calls %v", how, got.Signatures, w.Signatures, got.Open)
	}
	if w.Model != nil && got.Model != *w.Model {
		t.Errorf("%s: model %q, want %q", how, got.Model, *w.Model)
	}
	others := map[string]int{}
	for kind, n := range w.OtherParts {
		others[kind] = n
	}
	if !reflect.DeepEqual(got.Others, others) {
		t.Errorf("%s: other parts %v, want %v", how, got.Others, w.OtherParts)
	}
	if !reflect.DeepEqual(got.Finish, w.StopReason) || !reflect.DeepEqual(got.Usage, w.Usage) ||
		!reflect.DeepEqual(got.Err, w.Error) || !reflect.DeepEqual(got.Feedback, w.PromptFeedback) {
		t.Errorf("%s: ends\n got %v %v %v %v\nwant %v", how, got.Finish, got.Usage, got.Err, got.Feedback, w)
	}
	compareCalls(t, how, got.Calls, w.ToolCalls)
}

func compareCalls(t testing.TB, how string, got []MadeCall, want []ExpectedCall) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d calls, want %d", how, len(got), len(want))
	}
	seen := map[string]bool{}
	for i, c := range got {
		w := want[i]
		if w.ID != nil && c.ID != *w.ID || c.ID == "" || seen[c.ID] {
			t.Errorf("%s: call %d is %q", how, i, c.ID)
		}
		seen[c.ID] = true
		if c.Name != w.Name || !reflect.DeepEqual(c.Input, w.Input) {
			t.Errorf("%s: call %d\n got %+v\nwant %+v", how, i, c, w)
		}
		if how == "fold" && (c.Deltas != "") != w.StreamedArgs {
			t.Errorf("call %d: deltas %q", i, c.Deltas)
		}
		if c.Deltas != "" && !reflect.DeepEqual(providertest.Value(t, []byte(c.Deltas)), w.Input) {
			t.Errorf("call %d: its deltas join to %s", i, c.Deltas)
		}
	}
}
