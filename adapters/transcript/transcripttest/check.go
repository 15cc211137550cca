package transcripttest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// TranscriptOutcome is what a reader of the canonical events knows in the end.
type TranscriptOutcome struct {
	Roles        map[string]int
	Text         string // of the model
	Observations string // outputs of calls that are texts, in order
	Results      int    // calls that have ended
	Calls        []TranscriptCall
	Steps        int
	State        schema.RunState
	Reason       string
	Customs      map[string][]map[string]any // payloads by type
	EventIDs     []string                    // event_id of results, id of kept events, in order
}

// FromFold puts the events together as any reader of the log does.
func FromFold(t testing.TB, events []schema.Event) TranscriptOutcome {
	t.Helper()
	var f schema.Fold
	o := TranscriptOutcome{Roles: map[string]int{}, Customs: map[string][]map[string]any{}}
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		switch {
		case e.Type == schema.TypeStepBoundary:
			o.Steps++
		case e.Type == schema.TypeToolEnd:
			p := providertest.Object(t, e.Payload)
			o.Results++
			if s, ok := p["output"].(string); ok {
				o.Observations += s
			}
			o.EventIDs = append(o.EventIDs, word(p["event_id"]))
		case strings.HasPrefix(e.Type, "custom."):
			p := providertest.Object(t, e.Payload)
			o.Customs[e.Type] = append(o.Customs[e.Type], p)
			o.EventIDs = append(o.EventIDs, word(p["id"]))
		}
	}
	o.State, o.Reason = f.State, f.Reason
	for _, c := range f.Calls {
		if !c.Done {
			t.Errorf("call %s of %q is not closed", c.ID, c.Child)
		}
	}
	for _, c := range f.Children {
		if !c.State.Final() {
			t.Errorf("child %s is %q", c.ID, c.State)
		}
	}
	for _, m := range f.Messages {
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
		o.Roles[m.Role]++
		for _, b := range m.Blocks {
			switch {
			case b.Kind == "text" && m.Role == "assistant":
				o.Text += b.Text.String()
			case b.Kind == "tool_use" && b.Complete:
				o.Calls = append(o.Calls, TranscriptCall{ID: b.Call, Name: b.Tool,
					Input: providertest.Value(t, b.Input), RawInput: providertest.DigestOf(b.Text.String())})
			}
		}
	}
	return o
}

// FromContent reads message.end alone: the text and the calls of the model.
func FromContent(t testing.TB, events []schema.Event) (text string, calls []TranscriptCall) {
	t.Helper()
	role := map[string]string{}
	for _, e := range events {
		if e.Type != schema.TypeMessageStart && e.Type != schema.TypeMessageEnd {
			continue
		}
		p := providertest.Object(t, e.Payload)
		lane := e.ChildID + "/" + word(p["message_id"])
		if e.Type == schema.TypeMessageStart {
			role[lane] = word(p["role"])
			continue
		}
		for _, item := range p["content"].([]any) {
			switch b := item.(map[string]any); {
			case b["type"] == "text" && role[lane] == "assistant":
				text += word(b["text"])
			case b["type"] == "tool_use" && b["partial_json"] == nil:
				calls = append(calls, TranscriptCall{ID: word(b["id"]), Name: word(b["name"]), Input: b["input"]})
			}
		}
	}
	return text, calls
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

// Check holds the canonical events of a recorded transcript to what is expected of it.
func Check(t testing.TB, name string, events []schema.Event) {
	t.Helper()
	all, _ := Recordings(t)
	w, ok := all[name]
	if !ok {
		t.Fatalf("no recording %s", name)
	}
	got := FromFold(t, events)
	if w.Format == "gemini-cli" {
		geminitest.Compare(t, events, w.Streams...)
		if got.Steps != len(w.Streams) {
			t.Errorf("%d steps, want %d", got.Steps, len(w.Streams))
		}
		return
	}
	checkText(t, events, got, w)
	if w.Format == "swe-agent" {
		checkTrajectory(t, got, w)
	} else {
		checkConversation(t, got, w)
	}
}

// checkText compares the text and calls of the model, recorded in both ways.
func checkText(t testing.TB, events []schema.Event, got TranscriptOutcome, w Expectation) {
	t.Helper()
	var digest providertest.Digest
	if err := json.Unmarshal(w.Text, &digest); err != nil {
		t.Fatal(err)
	}
	text, calls := FromContent(t, events)
	if providertest.DigestOf(got.Text) != digest || text != got.Text {
		t.Errorf("text of %d bytes by deltas, %d by content, want %d", len(got.Text), len(text), digest.Bytes)
	}
	if len(got.Calls) != len(w.ToolCalls) || len(calls) != len(w.ToolCalls) {
		t.Fatalf("%d calls by deltas, %d by content, want %d", len(got.Calls), len(calls), len(w.ToolCalls))
	}
	for i, c := range w.ToolCalls {
		c.Kind = ""
		if !reflect.DeepEqual(got.Calls[i], c) {
			t.Errorf("call %d\n got %+v\nwant %+v", i, got.Calls[i], c)
		}
		c.RawInput = providertest.Digest{}
		if !reflect.DeepEqual(calls[i], c) {
			t.Errorf("call %d by content\n got %+v\nwant %+v", i, calls[i], c)
		}
	}
}

func checkTrajectory(t testing.TB, got TranscriptOutcome, w Expectation) {
	t.Helper()
	var seen providertest.Digest
	if err := json.Unmarshal(w.Observations, &seen); err != nil {
		t.Fatal(err)
	}
	if d := providertest.DigestOf(got.Observations); d != seen {
		t.Errorf("observations %+v, want %+v", d, seen)
	}
	messages := 0
	for _, n := range got.Roles {
		messages += n
	}
	if !reflect.DeepEqual(got.Roles, w.Roles) || messages != w.HistoryMessages || got.Steps != w.Steps ||
		got.Results != w.Steps {
		t.Errorf("roles %v, want %v; %d steps and %d results, want %d", got.Roles, w.Roles, got.Steps, got.Results, w.Steps)
	}
	info := got.Customs["custom.swe_agent.info"]
	if len(info) != 1 {
		t.Fatalf("info: %v", info)
	}
	inner := info[0]["info"].(map[string]any)
	if inner["exit_status"] != w.ExitStatus || !reflect.DeepEqual(inner["model_stats"], w.ModelStats) {
		t.Errorf("info %v", inner)
	}
}

func checkConversation(t testing.TB, got TranscriptOutcome, w Expectation) {
	t.Helper()
	var seen int
	if err := json.Unmarshal(w.Observations, &seen); err != nil {
		t.Fatal(err)
	}
	if got.Results != seen {
		t.Errorf("%d results, want %d", got.Results, seen)
	}
	kinds := map[string]int{"ActionEvent": len(got.Calls), "ObservationEvent": got.Results}
	for typ, list := range got.Customs {
		kinds[strings.TrimPrefix(typ, "custom.openhands.")] = len(list)
	}
	if !reflect.DeepEqual(kinds, w.Kinds) {
		t.Errorf("kinds %v, want %v", kinds, w.Kinds)
	}
	if n := len(got.EventIDs); n == 0 || got.EventIDs[0] != w.FirstID || got.EventIDs[n-1] != w.LastID {
		t.Errorf("ids %v", got.EventIDs)
	}
}
