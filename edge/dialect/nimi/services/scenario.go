package services

import (
	"context"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/nimi"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
	"agentstream/schema/jsonscan"
)

// Deadlines in milliseconds (K-STREAM-007).
const (
	firstDelta  = 60_000
	idleDelta   = 30_000
	totalText   = 120_000
	totalSpeech = 45_000
)

// wanted is a scenario as a client asks for it.
type wanted struct {
	as         string // stream, job, realtime
	method     string
	head       *runtimev1.ScenarioRequestHead
	kind       runtimev1.ScenarioType
	mode       runtimev1.ExecutionMode
	wantMode   runtimev1.ExecutionMode
	spec       *runtimev1.ScenarioSpec
	extensions []*runtimev1.ScenarioExtension
	labels     map[string]string
}

// stream begins a scenario whose stream follows.
func stream(c *protocol.Call, in dialect.Input) (req dialect.Request, err error) {
	m, err := nimi.Read(in.Body, &runtimev1.StreamScenarioRequest{})
	if err != nil {
		return req, err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	run, err := begin(ctx, c, wanted{as: "stream", method: "StreamScenario", head: m.GetHead(), kind: m.GetScenarioType(), mode: m.GetExecutionMode(),
		wantMode: runtimev1.ExecutionMode_EXECUTION_MODE_STREAM, spec: m.GetSpec(), extensions: m.GetExtensions()})
	return dialect.Request{Run: run, Stream: nimi.StreamScenario}, err
}

// begin stores a scenario and returns its run.
func begin(ctx context.Context, c *protocol.Call, w wanted) (run string, err error) {
	if err := w.check(ctx, c); err != nil {
		return "", err
	}
	created, said := w.created(), w.said()
	run, again, err := store(ctx, c, w.method, w.head.GetAppId(), []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: created}, {Type: schema.TypeCommandMessage, Actor: "user", Payload: c.By(said)}})
	if again && w.as == "stream" && w.leaves() {
		err = join(ctx, c, run)
	}
	return run, err
}

// store appends what begins a run: all or none, and once for a key. again reports whether it was there.
func store(ctx context.Context, c *protocol.Call, method, app string, events []schema.Event) (run string, again bool, err error) {
	opt, err := protocol.Keyed(headerKey, c.Request.Header[headerKey])
	if err != nil {
		return "", false, err
	}
	run = c.NewKeyedRun("sc_", "runtime\x00"+method+"\x00"+app, opt)
	opt.MustBeNew, opt.Whole = true, true
	receipt, err := c.Append(ctx, run, events, opt)
	return run, err == nil && receipt.Replayed, err
}

// leaves reports whether the run ends with the last of its clients.
func (w *wanted) leaves() bool {
	for _, e := range w.extensions {
		if e.GetNamespace() == "agentstream" && e.GetPayload().GetFields()["on_disconnect"].GetStringValue() == "cancel" {
			return true
		}
	}
	return false
}

// appOf is the app that a caller says to be. Several are none that there is.
func appOf(c *protocol.Call) string { return strings.Join(c.Request.Header[headerApp], ",") }

// checkCaller refuses a request that begins something for another app than the caller's, or with a key of a provider.
func checkCaller(c *protocol.Call, app string) error {
	if _, err := protocol.Keyed(headerKey, c.Request.Header[headerKey]); err != nil {
		return err
	}
	if app == "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_APP_ID_REQUIRED, "app_id is missing")
	}
	if said := appOf(c); said != "" && said != app {
		return nimi.Refuse(runtimev1.ReasonCode_AI_APP_ID_CONFLICT, "app_id is not that of the metadata")
	}
	if len(c.Request.Header[headerProvider]) > 0 || strings.EqualFold(c.Request.Header.Get(headerSource), "inline") {
		return nimi.Refuse(runtimev1.ReasonCode_AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN, "keys of providers are the worker's own")
	}
	return nil
}

// check refuses what cannot be asked for; the first fault wins (K-KEYSRC-004).
func (w *wanted) check(ctx context.Context, c *protocol.Call) error {
	h := w.head
	if err := checkCaller(c, h.GetAppId()); err != nil {
		return err
	}
	if h.GetConnectorId() != "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_CONNECTOR_NOT_FOUND, "there are no connectors")
	}
	if h.GetModelId() == "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_MODEL_ID_REQUIRED, "head.model_id is missing")
	}
	if err := announced(ctx, c, h.GetModelId()); err != nil {
		return err
	}
	return w.checkInput()
}

// checkInput refuses what no worker answers.
func (w *wanted) checkInput() error {
	if w.as == "realtime" {
		return nil
	}
	if w.mode != w.wantMode {
		return nimi.Refuse(runtimev1.ReasonCode_AI_ROUTE_UNSUPPORTED, "execution_mode is not %s", w.wantMode)
	}
	text, speech := w.spec.GetTextGenerate(), w.spec.GetSpeechSynthesize()
	switch w.kind {
	case runtimev1.ScenarioType_SCENARIO_TYPE_TEXT_GENERATE:
		if text == nil || len(text.GetInput()) == 0 {
			return nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "text_generate.input is empty")
		}
		for i, m := range text.GetInput() {
			if m.GetContent() == "" && len(m.GetParts()) == 0 {
				return nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "text_generate.input[%d] is empty", i)
			}
		}
	case runtimev1.ScenarioType_SCENARIO_TYPE_SPEECH_SYNTHESIZE:
		if strings.TrimSpace(speech.GetText()) == "" {
			return nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "speech_synthesize.text is empty")
		}
	default:
		return nimi.Refuse(runtimev1.ReasonCode_AI_ROUTE_UNSUPPORTED, "no worker answers %s", w.kind)
	}
	return nil
}

// announced refuses a model that no worker has announced, if any has announced models at all.
func announced(ctx context.Context, c *protocol.Call, model string) error {
	j, err := fold(ctx, c, nimi.StreamProvider)
	if err == nil && !j.Serves(model) {
		err = nimi.Refuse(runtimev1.ReasonCode_AI_MODEL_NOT_FOUND, "no worker has announced the model")
	}
	return err
}

// created is the payload of session.created (docs/dialects/runtime.md, "In the log").
func (w *wanted) created() []byte {
	h := w.head
	o := jsonscan.Object("{").Bool("once", w.as != "realtime").Str("model", h.GetModelId())
	in := jsonscan.Object("{").Str("as", w.as)
	total := int64(totalText)
	if text := w.spec.GetTextGenerate(); text != nil {
		o = o.OptStr("system", text.GetSystemPrompt()).OptRaw("tools", tools(text.GetTools())).OptRaw("parameters", textParameters(text))
		in = in.Str("type", "text")
		if text.GetReasoning().GetTraceMode() == runtimev1.ReasoningTraceMode_REASONING_TRACE_MODE_SEPARATE {
			in = in.Str("trace", "separate")
		}
	} else if speech := w.spec.GetSpeechSynthesize(); speech != nil {
		o = o.OptRaw("parameters", speechParameters(speech))
		in, total = in.Str("type", "speech"), totalSpeech
	}
	if t := int64(h.GetTimeoutMs()); t > 0 {
		total = t
	}
	o = o.Str("app_id", h.GetAppId()).OptStr("subject", h.GetSubjectUserId())
	if w.as != "realtime" {
		d := jsonscan.Object("{").Int("first_ms", min(firstDelta, total)).Int("idle_ms", min(idleDelta, total)).Int("total_ms", total)
		o = o.Raw("deadlines", d.End())
	}
	route := "local"
	if h.GetRoutePolicy() == runtimev1.RoutePolicy_ROUTE_POLICY_CLOUD {
		route = "cloud"
	}
	in = in.Str("route", route)
	if w.leaves() {
		in = in.Str("on_disconnect", "cancel")
	}
	if len(w.labels) > 0 {
		l := jsonscan.Object("{")
		for _, name := range sorted(w.labels) {
			l = l.Str(name, w.labels[name])
		}
		in = in.Raw("labels", l.End())
	}
	return o.Raw("runtime", in.End()).End()
}

// said is the payload of command.message.
func (w *wanted) said() []byte {
	if speech := w.spec.GetSpeechSynthesize(); speech != nil {
		return jsonscan.Object("{").Str("content", speech.GetText()).End()
	}
	input := w.spec.GetTextGenerate().GetInput()
	last := ""
	for _, m := range input {
		if text := plain(m); m.GetRole() == "user" || m.GetRole() == "" {
			last = text
		}
	}
	o := jsonscan.Object("{").Str("content", last)
	if len(input) == 1 && (input[0].GetRole() == "user" || input[0].GetRole() == "") && len(input[0].GetParts()) == 0 {
		return o.End()
	}
	list := []byte{'['}
	for i, m := range input {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, message(m)...)
	}
	return o.Raw("messages", append(list, ']')).End()
}

// cancel ends a run by request: a command to its worker.
func cancel(ctx context.Context, c *protocol.Call, run, reason string, over error) error {
	payload := c.By([]byte(jsonscan.Object("{").OptStr("reason", reason).End()))
	_, err := protocol.Change[*nimi.Job]{
		Request: dialect.Request{Run: run, Stream: nimi.StreamJob}, Events: []schema.Event{{Type: "command.cancel", Actor: "user", Payload: payload}},
		Options: producers.AppendOptions{}, Allow: func(j *nimi.Job) error {
			if j.Over() {
				return over
			}
			return nil
		},
	}.Store(ctx, c)
	return err
}
