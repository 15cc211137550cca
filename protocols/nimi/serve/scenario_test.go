package serve_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// TestKStream002 refuses before the stream begins: a status, no event, nothing stored; a failure behind that is an
// event, and OK.
func TestKStream002(t *testing.T) {
	n := start(t)
	type req = *runtimev1.StreamScenarioRequest
	for name, tt := range map[string]struct {
		change func(req)
		md     []string
		code   codes.Code
		reason string
	}{
		"no head":     {func(m req) { m.Head = nil }, nil, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID"},
		"no spec":     {func(m req) { m.Spec = nil }, nil, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID"},
		"no route":    {func(m req) { m.Head.RoutePolicy = 0 }, nil, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID"},
		"no app":      {func(m req) { m.Head.AppId = "" }, nil, codes.InvalidArgument, "AI_APP_ID_REQUIRED"},
		"another app": {func(m req) { m.Head.AppId = "other" }, nil, codes.InvalidArgument, "AI_APP_ID_CONFLICT"},
		"provider key": {func(req) {}, []string{"x-nimi-provider-api-key", "sk-secret"}, codes.PermissionDenied,
			"AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN"},
		"connector": {func(m req) { m.Head.ConnectorId = "c" }, nil, codes.NotFound, "AI_CONNECTOR_NOT_FOUND"},
		"no model":  {func(m req) { m.Head.ModelId = "" }, nil, codes.InvalidArgument, "AI_MODEL_ID_REQUIRED"},
		"no input": {func(m req) { m.Spec.GetTextGenerate().Input = nil }, nil, codes.InvalidArgument,
			"AI_INPUT_INVALID"},
		"type": {func(m req) { m.ScenarioType = 3 }, nil, codes.InvalidArgument, "AI_ROUTE_UNSUPPORTED"},
		"mode": {func(m req) { m.ExecutionMode = 1 }, nil, codes.InvalidArgument, "AI_ROUTE_UNSUPPORTED"},
		"several": {func(m req) { m.Head.ModelId, m.Head.AppId, m.Spec.GetTextGenerate().Input = "", "", nil },
			nil, codes.InvalidArgument, "AI_APP_ID_REQUIRED"},
		"no credential": {func(req) {}, []string{strings.ToLower(edgetest.As), "nobody"}, codes.Unauthenticated,
			"AUTH_TOKEN_INVALID"},
	} {
		list, err := open(with(t, append(tt.md, "x-nimi-idempotency-key", "same")...), n,
			"RuntimeAiService/StreamScenario", ask(tt.change), event).rest()
		if len(list) > 0 {
			t.Errorf("%s: %d events", name, len(list))
		}
		refused(t, name, err, tt.code, tt.reason)
	}
	o, run := n.scenario(with(t, "x-nimi-idempotency-key", "same"), ask()) // nothing was stored with the key
	n.Say(run, text("one delta, of more than thirty-two bytes"), over("error", "AI_PROVIDER_INTERNAL: it broke"))
	list, err := o.rest()
	if err != nil || len(list) != 2 || list[1].GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_PROVIDER_INTERNAL {
		t.Errorf("%v, %v", list, err)
	}
}

// TestKStream003 has text in every delta, and a terminal event with usage: -1 where the provider gives no count.
func TestKStream003(t *testing.T) {
	n := start(t)
	for usage, want := range map[string][2]int64{`{"input_tokens":7,"output_tokens":0}`: {7, 0}, `{}`: {-1, -1}} {
		o, run := n.scenario(with(t), ask())
		n.Say(run, edgetest.Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant","model":"demo-1"}`),
			text(""), text("short"),
			edgetest.Event(schema.TypeMessageEnd, `{"message_id":"m","stop_reason":"max_tokens","usage":`+usage+`}`),
			over("done", ""))
		list, err := o.rest()
		if err != nil || len(list) != 2 || list[0].GetDelta().GetText().GetText() != "short" {
			t.Fatalf("%v, %v", list, err)
		}
		c := list[1].GetCompleted()
		if u := c.GetUsage(); u.GetInputTokens() != want[0] || u.GetOutputTokens() != want[1] || u.GetComputeMs() != -1 ||
			c.GetFinishReason() != runtimev1.FinishReason_FINISH_REASON_LENGTH {
			t.Errorf("%s: %v", usage, c)
		}
	}
}

// TestKStream004 has audio of at most 32 KiB in every delta, with its type, and none in the terminal event.
func TestKStream004(t *testing.T) {
	n := start(t)
	o, run := n.scenario(with(t), ask(func(m *runtimev1.StreamScenarioRequest) {
		m.ScenarioType = runtimev1.ScenarioType_SCENARIO_TYPE_SPEECH_SYNTHESIZE
		m.Spec = &runtimev1.ScenarioSpec{Spec: &runtimev1.ScenarioSpec_SpeechSynthesize{SpeechSynthesize: &runtimev1.SpeechSynthesizeScenarioSpec{Text: "say it"}}}
	}))
	data := strings.Repeat("AAAA", 25<<10) // 75 KiB
	n.Say(run, edgetest.Event(schema.TypeDataDelta, `{"media_type":"audio/mpeg","data":"`+data+`"}`), over("done", ""))
	list, err := o.rest()
	if err != nil || len(list) != 4 || list[3].GetCompleted() == nil {
		t.Fatalf("%d events, %v", len(list), err)
	}
	got := 0
	for _, e := range list[:3] {
		a := e.GetDelta().GetArtifact()
		if n := len(a.GetChunk()); n == 0 || n > 32<<10 || a.GetMimeType() != "audio/mpeg" {
			t.Errorf("%d bytes of %s", n, a.GetMimeType())
		}
		got += len(a.GetChunk())
	}
	if got != 75<<10 {
		t.Errorf("%d bytes", got)
	}
}

// TestKStream006 holds text back until there are 32 bytes, counts text and reasoning apart, and flushes the reasoning
// first; before FAILED it flushes nothing.
func TestKStream006(t *testing.T) {
	n := start(t)
	separate := func(m *runtimev1.StreamScenarioRequest) {
		m.Spec.GetTextGenerate().Reasoning = &runtimev1.ReasoningConfig{TraceMode: runtimev1.ReasoningTraceMode_REASONING_TRACE_MODE_SEPARATE}
	}
	o, run := n.scenario(with(t), ask(separate))
	fifteen := strings.Repeat("é", 7) + "x" // bytes, not letters
	n.Say(run, text(fifteen), thought(fifteen), text(fifteen), thought(fifteen), text(fifteen), text("tail"),
		thought("end"), over("done", ""))
	list, err := o.rest()
	var got []string
	for i, e := range list {
		if e.GetSequence() != uint64(i+2) || e.GetTraceId() != run {
			t.Errorf("event %d has sequence %d and trace %s", i, e.GetSequence(), e.GetTraceId())
		}
		switch d := e.GetDelta(); {
		case d.GetText() != nil:
			got = append(got, "text "+d.GetText().GetText())
		case d.GetReasoning() != nil:
			got = append(got, "reasoning "+d.GetReasoning().GetText())
		}
	}
	want := []string{"text " + strings.Repeat(fifteen, 3), "reasoning " + strings.Repeat(fifteen, 2) + "end", "text tail"}
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q, want %q (%v)", got, want, err)
	}
	o, run = n.scenario(with(t), ask())
	n.Say(run, thought(strings.Repeat("hidden ", 10)), text("not flushed"), over("aborted", "stop"))
	list, err = o.rest()
	if err != nil || len(list) != 1 || list[0].GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_STREAM_BROKEN {
		t.Errorf("%v, %v", list, err)
	}
}

// TestKStream007 ends with AI_PROVIDER_TIMEOUT, whoever saw the deadline pass; the deadlines stand in the run.
func TestKStream007(t *testing.T) {
	n := start(t)
	o, run := n.scenario(with(t), ask(func(m *runtimev1.StreamScenarioRequest) { m.Head.TimeoutMs = 40_000 }))
	n.Say(run, over("error", "AI_PROVIDER_TIMEOUT: no delta for 30s"))
	list, err := o.rest()
	if err != nil || len(list) != 1 || list[0].GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT || list[0].GetFailed().GetActionHint() != "no delta for 30s" {
		t.Errorf("%v, %v", list, err)
	}
	o, run = n.scenario(with(t), ask())
	n.Say(run, over("error", "words without a code: of the inside"))
	if list, err := o.rest(); err != nil ||
		list[0].GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_STREAM_BROKEN ||
		list[0].GetFailed().GetActionHint() != "" {
		t.Errorf("%v, %v", list, err)
	}
}

// TestSameKeySameRun: the same key shows the same run on any node, another body is refused, and without one nothing is
// shared.
func TestSameKeySameRun(t *testing.T) {
	all := edgetest.Share()
	n, m := join(t, all), join(t, all)
	key := []string{"x-nimi-idempotency-key", "k1"}
	_, run := n.scenario(with(t, key...), ask())
	n.Say(run, text("and it is written only once, by one"), over("done", ""))
	o, again := m.scenario(with(t, key...), ask())
	if list, err := o.rest(); err != nil || again != run || len(list) != 2 {
		t.Errorf("%s and %s, %v, %v", run, again, list, err)
	}
	_, err := open(with(t, key...), m, "RuntimeAiService/StreamScenario",
		ask(func(m *runtimev1.StreamScenarioRequest) { m.Head.ModelId = "other" }), event).rest()
	refused(t, "another body", err, codes.FailedPrecondition, "AI_MEDIA_IDEMPOTENCY_CONFLICT")
	if _, other := n.scenario(with(t), ask()); other == run {
		t.Error("a run is shared without a key")
	}
	types := strings.Join(n.Types(run), " ")
	if types != "session.created command.message text.delta run.lifecycle" {
		t.Error(types)
	}
}

// TestKStream010 cuts a stream at shutdown with CANCELLED and invents no end.
func TestKStream010(t *testing.T) {
	all := edgetest.Share()
	n := join(t, all)
	o, run := n.scenario(with(t), ask())
	n.Say(run, text("something of thirty-two bytes or more"))
	if e := o.must(); e.GetDelta().GetText().GetText() == "" {
		t.Error(e)
	}
	go n.Stop()
	list, err := o.rest()
	if len(list) > 0 || status.Code(err) != codes.Canceled {
		t.Errorf("%v, %v", list, err)
	}
}

// TestAnnouncedModels refuses what no worker has announced, once one has announced something.
func TestAnnouncedModels(t *testing.T) {
	n := start(t)
	n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
		`{"providerName":"w1","state":"healthy","models":["demo","demo/fail"]}`))
	n.scenario(with(t), ask())
	_, err := open(with(t), n, "RuntimeAiService/StreamScenario",
		ask(func(m *runtimev1.StreamScenarioRequest) { m.Head.ModelId = "gone" }), event).rest()
	refused(t, "unknown", err, codes.NotFound, "AI_MODEL_NOT_FOUND")
}

// TestStored is the form in the log.
func TestStored(t *testing.T) {
	n := start(t)
	_, run := n.scenario(with(t), ask(func(m *runtimev1.StreamScenarioRequest) {
		m.Head.SubjectUserId = "u1"
		m.Spec.GetTextGenerate().SystemPrompt = "be brief"
		m.Spec.GetTextGenerate().MaxTokens = 5
		m.Spec.GetTextGenerate().Input = append(m.Spec.GetTextGenerate().Input,
			&runtimev1.ChatMessage{Role: "assistant", Content: "hi"}, &runtimev1.ChatMessage{Role: "user", Content: "and?"})
		s, _ := structpb.NewStruct(map[string]any{"on_disconnect": "cancel"})
		m.Extensions = []*runtimev1.ScenarioExtension{{Namespace: "agentstream", Payload: s}}
	}))
	var got []string
	for p, err := range n.Nodes.Log.Packs(t.Context(), edgetest.Key(run), 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(r.Payload()))
		}
	}
	want := []string{
		`{"once":true,"model":"demo","system":"be brief","parameters":{"max_tokens":5},"app_id":"app","subject":"u1",` +
			`"deadlines":{"first_ms":60000,"idle_ms":30000,"total_ms":120000},"runtime":{"as":"stream","type":"text","route":"local","on_disconnect":"cancel"}}`,
		`{"content":"and?","messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"and?"}],"by":"ann"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
