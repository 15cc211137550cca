package nimi

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
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
	Once     bool
	Model    string
	App      string
	Subject  string
	As       string // stream, job, workflow, realtime; "": it is no scenario
	Type     runtimev1.ScenarioType
	Route    runtimev1.RoutePolicy
	Separate bool // reasoning is shown
	Leaves   bool // it is cancelled when the last of its streams' clients leaves
	Timeout  int64
	Workflow json.RawMessage
}

// ReadScenario reads the payload of session.created. That of another kind of session has no app and no As.
func ReadScenario(payload []byte) (s Scenario) {
	f := jsonscan.Fields(nil).Read(payload)
	s.Once, s.Model, s.App, s.Subject = f.Yes("once"), f.Str("model"), f.Str("app_id"), f.Str("subject")
	if d := jsonscan.Fields(nil).Read(f.Object("deadlines")); d != nil {
		s.Timeout, _ = d.Integer("total_ms")
	}
	in := jsonscan.Fields(nil).Read(f.Object("runtime"))
	s.As, s.Separate, s.Workflow = in.Str("as"), in.Str("trace") == "separate", in.Object("workflow")
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
	in, out int64
	counted bool // in and out are of messages, not of calls of a model
	haveIn  bool
	haveOut bool
}

// hear reads a record that is no delta.
func (h *heard) hear(r schema.Record) {
	switch string(r.Type) {
	case schema.TypeMessageStart:
		f := jsonscan.Fields(nil).Read(r.Payload())
		if m := f.Str("model"); m != "" {
			h.model = strings.Clone(m)
		}
		h.refusal = ""
	case schema.TypeBlockStart:
		f := jsonscan.Fields(nil).Read(r.Payload())
		if f.Str("kind") == "refusal" {
			h.refusal = string(f.Raw("index"))
		}
	case schema.TypeMessageEnd:
		f := jsonscan.Fields(nil).Read(r.Payload())
		if s := f.Str("stop_reason"); s != "" {
			h.stop = strings.Clone(s)
		}
		if u := jsonscan.Fields(nil).Read(f.Object("usage")); u != nil {
			if !h.counted { // of calls until now
				h.in, h.out, h.counted, h.haveIn, h.haveOut = 0, 0, true, false, false
			}
			h.count(u)
		}
	case schema.TypeModelEnd:
		f := jsonscan.Fields(nil).Read(r.Payload())
		if u := jsonscan.Fields(nil).Read(f.Object("usage")); u != nil && !h.counted {
			h.count(u)
		}
	}
}

// refuses reports whether a piece of text is the model's refusal, which is no text of its answer.
func (h *heard) refuses(delta jsonscan.Fields) bool {
	return h.refusal != "" && string(delta.Raw("index")) == h.refusal
}

// count adds what a provider has counted, under the names that each has for it.
func (h *heard) count(u jsonscan.Fields) {
	add := func(to *int64, have *bool, names ...string) {
		for _, name := range names {
			if n, ok := u.Integer(name); ok {
				*to, *have = *to+n, true
				return
			}
		}
	}
	add(&h.in, &h.haveIn, "input_tokens", "prompt_tokens", "promptTokenCount")
	add(&h.out, &h.haveOut, "output_tokens", "completion_tokens", "candidatesTokenCount")
}

// usage returns the counts; -1 is unknown (K-STREAM-003).
func (h *heard) usage() *runtimev1.UsageStats {
	u := &runtimev1.UsageStats{InputTokens: -1, OutputTokens: -1, ComputeMs: -1}
	if h.haveIn {
		u.InputTokens = h.in
	}
	if h.haveOut {
		u.OutputTokens = h.out
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
