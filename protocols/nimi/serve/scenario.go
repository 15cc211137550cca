package serve

import (
	"context"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
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
	*runtimev1.StreamScenarioRequest
	as     string // stream, job, realtime
	method string
	mode   runtimev1.ExecutionMode // the only one in which the method executes
	labels map[string]string
	sound  bool // of a realtime session
}

// stream begins a scenario whose stream follows.
func stream(c *protocol.Call, in dialect.Input) (req dialect.Request, err error) {
	m, err := nimi.Read(in.Body, &runtimev1.StreamScenarioRequest{})
	if err != nil {
		return req, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	w := wanted{StreamScenarioRequest: m, as: "stream", method: "StreamScenario",
		mode: runtimev1.ExecutionMode_EXECUTION_MODE_STREAM}
	run, again, err := w.store(ctx, c)
	if again && w.isTiedToClients() {
		err = join(ctx, c, run)
	}
	return dialect.Request{Run: run, Stream: nimi.StreamScenario}, err
}

// store stores a scenario and returns its run, and whether it was there.
func (w *wanted) store(ctx context.Context, c *protocol.Call) (run string, again bool, err error) {
	if err := w.check(ctx, c); err != nil {
		return "", false, err
	}
	if w.as == "realtime" {
		return store(ctx, c, w.method, w.sessionPayload(), nil)
	}
	return store(ctx, c, w.method, w.sessionPayload(), w.inputPayload())
}

// store appends what begins a run, with a message unless it is nil: all or none, and once for a key. again reports
// whether it was there.
func store(ctx context.Context, c *protocol.Call, method string, created session, said *input) (run string, again bool,
	err error) {
	opt, err := protocol.ParseKey(headerKey, c.Request.Header[headerKey])
	if err != nil {
		return "", false, err
	}
	payload, err := encode(created)
	if err != nil {
		return "", false, err
	}
	events := []schema.Event{{Type: schema.TypeSessionCreated, Actor: "user", Payload: payload}}
	if said != nil {
		if payload, err = encode(said); err != nil {
			return "", false, err
		}
		events = append(events, schema.Event{Type: schema.TypeCommandMessage, Actor: "user", Payload: c.By(payload)})
	}
	run = c.NewKeyedRun("sc_", "runtime\x00"+method+"\x00"+created.App, opt)
	opt.MustBeNew, opt.Whole = true, true
	receipt, err := c.Append(ctx, run, events, opt)
	return run, err == nil && receipt.Replayed, err
}

// isTiedToClients reports whether the run ends with the last of its clients.
func (w *wanted) isTiedToClients() bool {
	for _, e := range w.GetExtensions() {
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
	if _, err := protocol.ParseKey(headerKey, c.Request.Header[headerKey]); err != nil {
		return err
	}
	if app == "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_APP_ID_REQUIRED, "app_id is missing")
	}
	if said := appOf(c); said != "" && said != app {
		return nimi.Refuse(runtimev1.ReasonCode_AI_APP_ID_CONFLICT, "app_id is not that of the metadata")
	}
	if len(c.Request.Header[headerProvider]) > 0 || strings.EqualFold(c.Request.Header.Get(headerSource), "inline") {
		return nimi.Refuse(runtimev1.ReasonCode_AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN,
			"keys of providers are the worker's own")
	}
	return nil
}

// check refuses what cannot be asked for; the first fault wins (K-KEYSRC-004).
func (w *wanted) check(ctx context.Context, c *protocol.Call) error {
	h := w.GetHead()
	if err := checkCaller(c, h.GetAppId()); err != nil {
		return err
	}
	if h.GetConnectorId() != "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_CONNECTOR_NOT_FOUND, "there are no connectors")
	}
	if h.GetModelId() == "" {
		return nimi.Refuse(runtimev1.ReasonCode_AI_MODEL_ID_REQUIRED, "head.model_id is missing")
	}
	if err := checkModel(ctx, c, h.GetModelId()); err != nil {
		return err
	}
	return w.checkInput()
}

// checkInput refuses what no worker answers.
func (w *wanted) checkInput() error {
	if w.as == "realtime" {
		if w.sound {
			return nimi.Refuse(runtimev1.ReasonCode_AI_MEDIA_OPTION_UNSUPPORTED, "sessions are of text")
		}
		return nil
	}
	if w.GetExecutionMode() != w.mode {
		return nimi.Refuse(runtimev1.ReasonCode_AI_ROUTE_UNSUPPORTED, "execution_mode is not %s", w.mode)
	}
	text, speech := w.GetSpec().GetTextGenerate(), w.GetSpec().GetSpeechSynthesize()
	switch w.GetScenarioType() {
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
		return nimi.Refuse(runtimev1.ReasonCode_AI_ROUTE_UNSUPPORTED, "no worker answers %s", w.GetScenarioType())
	}
	return nil
}

// checkModel refuses a model that no worker has announced, if any has announced models at all.
func checkModel(ctx context.Context, c *protocol.Call, model string) error {
	_, j, err := fold(ctx, c, nimi.StreamProvider)
	if err == nil && !j.HasModel(model) {
		err = nimi.Refuse(runtimev1.ReasonCode_AI_MODEL_NOT_FOUND, "no worker has announced the model")
	}
	return err
}

// sessionPayload is what session.created holds for the scenario.
func (w *wanted) sessionPayload() session {
	h := w.GetHead()
	s := session{Once: w.as != "realtime", Model: h.GetModelId(), App: h.GetAppId(), Subject: h.GetSubjectUserId(),
		Runtime: view{As: w.as, Route: "local", Labels: w.labels}}
	most := int64(totalText)
	if text := w.GetSpec().GetTextGenerate(); text != nil {
		s.System, s.Parameters, s.Runtime.Type = text.GetSystemPrompt(), textParameters(text), "text"
		for _, t := range text.GetTools() {
			s.Tools = append(s.Tools, tool{t.GetName(), t.GetInputSchema()})
		}
		if text.GetReasoning().GetTraceMode() == runtimev1.ReasoningTraceMode_REASONING_TRACE_MODE_SEPARATE {
			s.Runtime.Trace = "separate"
		}
	} else if speech := w.GetSpec().GetSpeechSynthesize(); speech != nil {
		s.Parameters, s.Runtime.Type, most = speechParameters(speech), "speech", totalSpeech
	}
	if s.Once {
		most = total(h.GetTimeoutMs(), most)
		s.Deadlines = deadlines{min(firstDelta, most), min(idleDelta, most), most}
	}
	if h.GetRoutePolicy() == runtimev1.RoutePolicy_ROUTE_POLICY_CLOUD {
		s.Runtime.Route = "cloud"
	}
	if w.isTiedToClients() {
		s.Runtime.OnDisconnect = "cancel"
	}
	return s
}

// total is the time for a run in all: what the client asks for, else most.
func total(asked int32, most int64) int64 {
	if asked > 0 {
		return int64(asked)
	}
	return most
}

// inputPayload is what command.message holds for the scenario.
func (w *wanted) inputPayload() *input {
	if speech := w.GetSpec().GetSpeechSynthesize(); speech != nil {
		return &input{Content: speech.GetText()}
	}
	in := &input{}
	for _, m := range w.GetSpec().GetTextGenerate().GetInput() {
		in.Messages = append(in.Messages, messageOf(m))
		if in.Messages[len(in.Messages)-1].Role == "user" {
			in.Content = plain(m)
		}
	}
	if len(in.Messages) == 1 && in.Messages[0].Content == in.Content { // parts are no string
		in.Messages = nil
	}
	return in
}

// change appends events to a run, unless it is over.
func change(ctx context.Context, c *protocol.Call, run string, over error, opt producers.AppendOptions,
	events ...schema.Event) error {
	_, err := protocol.Change[*nimi.Job]{Request: dialect.Request{Run: run, Stream: nimi.StreamJob}, Events: events,
		Options: opt, Allow: func(j *nimi.Job) error {
			if j.Over() {
				return over
			}
			return nil
		}}.Store(ctx, c)
	return err
}

// cancel ends a run by request: a command to its worker.
func cancel(ctx context.Context, c *protocol.Call, run, reason string) error {
	payload := c.By([]byte(jsonscan.Object("{").OptStr("reason", reason).End()))
	return change(ctx, c, run, nimi.Refuse(runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_CANCELLABLE, "it is over"),
		producers.AppendOptions{},
		schema.Event{Type: "command.cancel", Actor: "user", Payload: payload})
}
