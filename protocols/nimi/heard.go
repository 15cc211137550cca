package nimi

import (
	"cmp"
	"maps"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Types that package schema has no names for.
const (
	typeCancel = "command.cancel"
	// TypeClients is of clients of a scenario's stream that come again or leave: {"client": "came" or "left"}.
	TypeClients = "custom.runtime.clients"
)

// Scenario is what the first record of a run says of it (docs/dialects/runtime.md, "In the log").
type Scenario struct {
	Model    string
	App      string
	Subject  string
	As       string // stream, job, workflow, realtime; "": it is no scenario
	Type     runtimev1.ScenarioType
	Route    runtimev1.RoutePolicy
	Separate bool // reasoning is shown
	Leaves   bool // it is cancelled when the last of its streams' clients leaves
	Timeout  int64
}

// ReadScenario reads the payload of session.created. That of another kind of session has no app and no As.
func ReadScenario(payload []byte) (s Scenario) {
	f := jsonscan.Fields(nil).Read(payload)
	s.Model, s.App, s.Subject = f.Str("model"), f.Str("app_id"), f.Str("subject")
	if d := jsonscan.Fields(nil).Read(f.Object("deadlines")); d != nil {
		s.Timeout, _ = d.Integer("total_ms")
	}
	in := jsonscan.Fields(nil).Read(f.Object("runtime"))
	s.As, s.Separate = in.Str("as"), in.Str("trace") == "separate"
	s.Leaves = s.As == "stream" && in.Str("on_disconnect") == "cancel"
	switch in.Str("route") {
	case "local":
		s.Route = runtimev1.RoutePolicy_ROUTE_POLICY_LOCAL
	case "cloud":
		s.Route = runtimev1.RoutePolicy_ROUTE_POLICY_CLOUD
	}
	switch in.Str("type") {
	case "text":
		s.Type = runtimev1.ScenarioType_SCENARIO_TYPE_TEXT_GENERATE
	case "speech":
		s.Type = runtimev1.ScenarioType_SCENARIO_TYPE_SPEECH_SYNTHESIZE
	}
	return s
}

// heard is what the messages of a run record of themselves.
type heard struct {
	model   string
	stop    string
	refusal string // index of the block with the model's refusal; "": there is none
	in, out tokens
	counted bool // in and out are of messages, not of calls of a model
	ended   map[string]struct{}
}

// maxEnded bounds what is remembered of ends. When it is more, all is forgotten.
const maxEnded = 1 << 8

// isRepeat reports whether what an end names has ended before and has not started since, and notes it. What has no name
// is no repeat.
func (h *heard) isRepeat(typ, id string) bool {
	if id == "" {
		return false
	}
	key := typ + " " + id
	if _, ok := h.ended[key]; ok {
		return true
	}
	if h.ended == nil || len(h.ended) >= maxEnded {
		h.ended = make(map[string]struct{})
	}
	h.ended[key] = struct{}{}
	return false
}

// clone returns a copy that goes on by itself.
func (h heard) clone() heard {
	h.ended = maps.Clone(h.ended)
	return h
}

// tokens is a count that may be unknown.
type tokens struct {
	n     int64
	known bool
}

// hear reads a record that is no delta.
func (h *heard) hear(r schema.Record) {
	typ := string(r.Type)
	switch typ {
	case schema.TypeMessageStart, schema.TypeBlockStart, schema.TypeMessageEnd, schema.TypeModelStart, schema.TypeModelEnd:
	default:
		return
	}
	f := jsonscan.Fields(nil).Read(r.Payload())
	u := jsonscan.Fields(nil).Read(f.Object("usage"))
	switch typ {
	case schema.TypeModelStart:
		delete(h.ended, schema.TypeModelEnd+" "+f.Str("call_id"))
	case schema.TypeMessageStart:
		delete(h.ended, schema.TypeMessageEnd+" "+f.Str("message_id"))
		h.model, h.refusal = cmp.Or(strings.Clone(f.Str("model")), h.model), ""
	case schema.TypeBlockStart:
		if f.Str("kind") == "refusal" {
			h.refusal = string(f.Raw("index"))
		}
	case schema.TypeMessageEnd:
		if h.isRepeat(typ, f.Str("message_id")) {
			return
		}
		h.stop = cmp.Or(strings.Clone(f.Str("stop_reason")), h.stop)
		if u != nil && !h.counted { // what was counted until now is of calls
			h.in, h.out, h.counted = tokens{}, tokens{}, true
		}
		h.count(u)
	case schema.TypeModelEnd:
		if !h.counted && !h.isRepeat(typ, f.Str("call_id")) {
			h.count(u)
		}
	}
}

// isRefusal reports whether a piece of text is the model's refusal, which is no text of its answer.
func (h *heard) isRefusal(delta jsonscan.Fields) bool {
	return h.refusal != "" && string(delta.Raw("index")) == h.refusal
}

// count adds what a provider has counted, under the names that each has for it.
func (h *heard) count(u jsonscan.Fields) {
	add := func(to *tokens, names ...string) {
		for _, name := range names {
			if n, ok := u.Integer(name); ok {
				*to = tokens{to.n + n, true}
				return
			}
		}
	}
	add(&h.in, "input_tokens", "prompt_tokens", "promptTokenCount")
	add(&h.out, "output_tokens", "completion_tokens", "candidatesTokenCount")
}

// usage returns the counts; -1 is unknown (K-STREAM-003).
func (h *heard) usage() *runtimev1.UsageStats {
	u := &runtimev1.UsageStats{InputTokens: -1, OutputTokens: -1, ComputeMs: -1}
	if h.in.known {
		u.InputTokens = h.in.n
	}
	if h.out.known {
		u.OutputTokens = h.out.n
	}
	return u
}

// appendUsage encodes the counts.
func (h *heard) appendUsage(b []byte) []byte {
	u := h.usage()
	for i, n := range []int64{u.InputTokens, u.OutputTokens, u.ComputeMs} {
		b = appendNumber(b, protowire.Number(i+1), uint64(n))
	}
	return b
}

// finish returns why the last message ended.
func (h *heard) finish() runtimev1.FinishReason {
	switch h.stop {
	case "max_tokens", "length":
		return runtimev1.FinishReason_FINISH_REASON_LENGTH
	case "tool_use", "tool_calls":
		return runtimev1.FinishReason_FINISH_REASON_TOOL_CALL
	case "refusal", "content_filter", "safety":
		return runtimev1.FinishReason_FINISH_REASON_CONTENT_FILTER
	}
	return runtimev1.FinishReason_FINISH_REASON_STOP
}
