package e2e_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
)

// checkMessages compares what the library has put together with the run's messages.
func (c *sdkCase) checkMessages(t *testing.T, lines []string, fold *schema.Fold, got []sdkMessage) {
	t.Helper()
	var stored []*schema.FoldMessage
	for _, m := range fold.Messages {
		if m.Role == "assistant" && m.Error == nil {
			stored = append(stored, m)
		}
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
	}
	if c.refuses {
		if len(got) != 0 || len(stored) != 1 || stored[0].StopReason != "max_tokens" {
			t.Errorf("the run has %d messages, the library %d", len(stored), len(got))
		}
		return
	}
	if c.Name == "openai-three-choices" && len(got) == 3 {
		got = got[:1] // the others stand beside the message's content, not in the fold
	}
	if len(stored) != len(got) {
		t.Fatalf("the run has %d messages without an error, the library %d: %+v", len(stored), len(got), got)
	}
	whole := contents(t, lines)
	for i, m := range stored {
		compareMessage(t, got[i], m)
		if got[i].Content != nil && !reflect.DeepEqual(got[i].Content, whole[i]) {
			a, _ := json.Marshal(got[i].Content)
			b, _ := json.Marshal(whole[i])
			t.Errorf("content\nlibrary %s\n    run %s", a, b)
		}
	}
}

// contents are what the assistant's messages without an error say as a whole, at their ends.
func contents(t *testing.T, lines []string) (list []any) {
	t.Helper()
	role := ""
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Role           string
			Content, Error any
		}
		if e.Type != schema.TypeMessageStart && e.Type != schema.TypeMessageEnd {
			continue
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Type == schema.TypeMessageStart:
			role = p.Role
		case role == "assistant" && p.Error == nil:
			list = append(list, p.Content)
		}
	}
	return list
}

func compareMessage(t *testing.T, got sdkMessage, m *schema.FoldMessage) {
	t.Helper()
	texts := make(map[string]string)
	var tools []sdkTool
	for _, b := range m.Blocks {
		texts[b.Kind] += b.Text.String()
		if b.Kind == "tool_use" || b.Kind == "function_call" {
			tools = append(tools, sdkTool{b.Call, b.Tool, decodeAny(t, b.Input)})
		}
	}
	if texts["text"] != got.Text || texts["refusal"] != got.Refusal {
		t.Errorf("text\nlibrary %q %q\n    run %q %q", got.Text, got.Refusal, texts["text"], texts["refusal"])
	}
	if got.Thinking != nil && *got.Thinking != texts["reasoning"] {
		t.Errorf("thinking\nlibrary %q\n    run %q", *got.Thinking, texts["reasoning"])
	}
	if !slices.EqualFunc(got.Tools, tools, func(a, b sdkTool) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("tools\nlibrary %+v\n    run %+v", got.Tools, tools)
	}
	if got.Model != m.Model || got.ID != "" && got.ID != m.ID {
		t.Errorf("library: %s of %s, run: %s of %s", got.ID, got.Model, m.ID, m.Model)
	}
	if want := commonStop(got); m.StopReason != want {
		t.Errorf("library stops with %q, run %q", got.Stop, m.StopReason)
	}
	if usage := decodeAny(t, m.Usage); !reflect.DeepEqual(usage, got.Usage) {
		t.Errorf("usage\nlibrary %v\n    run %v", got.Usage, usage)
	}
}

// commonStop is the run's word for what a library stops with.
func commonStop(m sdkMessage) string {
	switch m.Stop {
	case "stop", "STOP", "completed":
		switch {
		case len(m.Tools) > 0:
			return "tool_use"
		case m.Refusal != "":
			return "refusal"
		}
		return "end_turn"
	case "tool_calls":
		return "tool_use"
	case "length":
		return "max_tokens"
	}
	return m.Stop
}

func decodeAny(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Errorf("%v: %.300s", err, raw)
	}
	return v
}

// checkFailures looks at the answers that are no message for the library.
func (c *sdkCase) checkFailures(t *testing.T, fold *schema.Fold, fault *sdkError) {
	t.Helper()
	var failed []*schema.FoldMessage
	for _, m := range fold.Messages {
		if m.Error != nil {
			failed = append(failed, m)
		}
	}
	var want []answer
	for _, a := range c.answers {
		if a.fails {
			want = append(want, a)
		}
	}
	if len(failed) != len(want) {
		t.Fatalf("%d messages of the run failed, want %d", len(failed), len(want))
	}
	last := c.answers[len(c.answers)-1]
	if (fault != nil) != (last.fails || c.refuses) {
		t.Fatalf("the library's error is %+v", fault)
	}
	if fault == nil || c.refuses {
		return
	}
	e := failed[len(failed)-1]
	if last.status != 200 && fault.Status != last.status {
		t.Errorf("the library knows status %d", fault.Status)
	}
	if fault.Body != nil {
		said, _ := json.Marshal(fault.Body)
		if got := decodeAny(t, e.Error); !reflect.DeepEqual(got,
			decodeAny(t, []byte(strings.ReplaceAll(string(said), sdkKey, "…")))) {
			t.Errorf("error\nlibrary %s\n    run %s", said, e.Error)
		}
	}
	switch {
	case last.after == whole:
		if fault.Body == nil {
			t.Errorf("the library says %+v", fault)
		}
	case last.after == held:
		if !strings.Contains(fault.Type+fault.Message, "bort") {
			t.Errorf("the library says %+v", fault)
		}
		fallthrough
	case last.after == broken:
		if len(e.Blocks) == 0 || e.Blocks[0].Text.Len() < 20 {
			t.Errorf("nothing is kept of what had come: %+v", e)
		}
	}
}

// checkTools: what the second request says of the first one's tools is told.
func (c *sdkCase) checkTools(t *testing.T, fold *schema.Fold, calls []sdkCall) {
	t.Helper()
	if len(calls) < 2 {
		return
	}
	for _, tool := range calls[0].Messages[0].Tools {
		i := slices.IndexFunc(fold.Calls, func(f *schema.FoldCall) bool { return f.ID == tool.ID })
		if i < 0 {
			t.Fatalf("no call %s in the run", tool.ID)
		}
		if f := fold.Calls[i]; !f.Done || !f.OK || !strings.Contains(string(f.Output), `"result of `+tool.ID+`"`) {
			t.Errorf("call %s: done %v, ok %v, output %s", f.ID, f.Done, f.OK, f.Output)
		}
	}
}
