package langgraphtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// Sent is a protocol event, as an agent has sent it or as a client gets it.
type Sent struct {
	Method string
	Params struct {
		Namespace []string
		Node      string
		Timestamp int64
		Data      any
	}
}

// ReadSent reads JSON lines.
func ReadSent(lines []byte) (all []Sent, err error) {
	for line := range strings.Lines(string(lines)) {
		var s Sent
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		if name, ok := strings.CutPrefix(s.Method, "custom:"); ok { // clients know these by their names
			s.Method, s.Params.Data = "custom", map[string]any{"name": name, "payload": s.Params.Data}
		}
		all = append(all, s)
	}
	return all, nil
}

// Differences returns where what a LangGraph agent has sent is not what clients get: order, method, namespace, node,
// timestamp, data. That is all the same, but for what docs/dialects/langchain.md names: requests for input and their
// answers are events; a run that has asked for input is interrupted; messages have a message_id, and a role at their
// start; of a call's arguments some deltas may be left out.
func Differences(in, out []Sent) (all []string) {
	asked, i := false, 0
	for _, got := range out {
		if strings.HasPrefix(got.Method, "input.") && (i >= len(in) || in[i].Method != got.Method) {
			asked = got.Method == "input.requested"
			continue
		}
		for i < len(in) && isArgs(in[i]) && !reflect.DeepEqual(asClient(in[i], got, asked), got) {
			i++
		}
		if i >= len(in) {
			return append(all, fmt.Sprintf("one too many: %+v", got))
		}
		if want := asClient(in[i], got, asked); !reflect.DeepEqual(want, got) {
			all = append(all, fmt.Sprintf("event %d is\n%+v\nwant\n%+v", i, got, want))
		}
		i++
	}
	if i < len(in) {
		all = append(all, fmt.Sprintf("%d are missing from %+v on", len(in)-i, in[i]))
	}
	return all
}

func isArgs(s Sent) bool {
	data, _ := s.Params.Data.(map[string]any)
	delta, _ := data["delta"].(map[string]any)
	return delta["type"] == "block-delta"
}

// asClient returns the event as a client gets it.
func asClient(s, got Sent, asked bool) Sent {
	if s.Params.Namespace == nil {
		s.Params.Namespace = []string{}
	}
	data, _ := s.Params.Data.(map[string]any)
	if data == nil {
		return s
	}
	data = maps.Clone(data)
	s.Params.Data = data
	have, _ := got.Params.Data.(map[string]any)
	switch {
	case s.Method == "messages" && data["message_id"] == nil && have["message_id"] != nil:
		data["message_id"] = have["message_id"]
		if data["event"] == "message-start" && data["role"] == nil {
			data["role"] = "ai"
		}
	case s.Method == "lifecycle" && len(s.Params.Namespace) == 0 && asked && data["event"] == "completed":
		s.Params.Data = have
		if have["event"] != "interrupted" {
			s.Params.Data = "interrupted"
		}
	}
	return s
}
