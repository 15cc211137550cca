package serve

import (
	"context"

	"google.golang.org/protobuf/encoding/protojson"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

const noSession = runtimev1.ReasonCode_AI_REALTIME_SESSION_NOT_FOUND

// openRealtime begins a session, which takes messages until it is closed.
func openRealtime(ctx context.Context, c *protocol.Call,
	m *runtimev1.OpenRealtimeSessionRequest) (*runtimev1.OpenRealtimeSessionResponse, error) {
	text := &runtimev1.ScenarioSpec_TextGenerate{TextGenerate: &runtimev1.TextGenerateScenarioSpec{SystemPrompt: m.GetSystemPrompt()}}
	w := wanted{as: "realtime", method: "OpenRealtimeSession", StreamScenarioRequest: &runtimev1.StreamScenarioRequest{
		Head: m.GetHead(), Extensions: m.GetExtensions(), Spec: &runtimev1.ScenarioSpec{Spec: text},
	}, sound: m.GetOutputAudioFormat() != "" || m.GetOutputSampleRateHz() != 0}
	run, _, err := w.store(ctx, c)
	if err != nil {
		return nil, err
	}
	return &runtimev1.OpenRealtimeSessionResponse{SessionId: run, TraceId: run, ModelResolved: m.GetHead().GetModelId(),
		RouteDecision: m.GetHead().GetRoutePolicy()}, nil
}

// tell appends events to a session that is open.
func tell(ctx context.Context, c *protocol.Call, run string, events ...schema.Event) error {
	opt, err := protocol.ParseKey(headerKey, c.Request.Header[headerKey])
	if err != nil {
		return err
	}
	return change(ctx, c, run, nimi.Refuse(runtimev1.ReasonCode_AI_REALTIME_SESSION_CLOSED, "the session is closed"),
		opt, events...)
}

func appendRealtime(ctx context.Context, c *protocol.Call,
	m *runtimev1.AppendRealtimeInputRequest) (*runtimev1.AppendRealtimeInputResponse, error) {
	_, _, err := job(ctx, c, m.GetSessionId(), noSession)
	if err != nil {
		return nil, err
	}
	var events []schema.Event
	for _, it := range m.GetItems() {
		if it.GetAudio() != nil {
			return nil, nimi.Refuse(runtimev1.ReasonCode_AI_MEDIA_OPTION_UNSUPPORTED, "sessions are of text")
		}
		text := plain(it.GetMessage())
		if text == "" {
			return nil, nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "an item says nothing")
		}
		events = append(events, schema.Event{Type: schema.TypeCommandMessage, Actor: "user",
			Payload: c.By([]byte(jsonscan.Object("{").Str("content", text).End()))})
	}
	if len(events) == 0 {
		return nil, nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "there are no items")
	}
	if err := tell(ctx, c, m.GetSessionId(), events...); err != nil {
		return nil, err
	}
	return &runtimev1.AppendRealtimeInputResponse{Ack: &runtimev1.Ack{Ok: true,
		ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, TraceId: m.GetSessionId()}, nil
}

func closeRealtime(ctx context.Context, c *protocol.Call,
	m *runtimev1.CloseRealtimeSessionRequest) (*runtimev1.CloseRealtimeSessionResponse, error) {
	_, _, err := job(ctx, c, m.GetSessionId(), noSession)
	if err == nil {
		err = tell(ctx, c, m.GetSessionId(), schema.Event{Type: schema.TypeRunLifecycle, Actor: "user",
			Payload: []byte(`{"state":"done","reason":null}`)})
	}
	if err != nil {
		return nil, err
	}
	return &runtimev1.CloseRealtimeSessionResponse{Ack: &runtimev1.Ack{Ok: true,
		ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}}, nil
}

// ofMessages admits an app to its own messages.
func ofMessages(c *protocol.Call, req *dialect.Request) error {
	if app := appOf(c); app != "" && nimi.MessageRun(app) != req.Run {
		return nimi.Refuse(runtimev1.ReasonCode_APP_SCOPE_FORBIDDEN, "they are another app's")
	}
	return nil
}

// maxPayload bounds the payload of a message between apps, in bytes of JSON.
const maxPayload = 32 << 10

// sendMessage appends a message to the feed of the app that it is for.
func sendMessage(ctx context.Context, c *protocol.Call,
	m *runtimev1.SendAppMessageRequest) (*runtimev1.SendAppMessageResponse, error) {
	if app := appOf(c); app != "" && app != m.GetFromAppId() {
		return nil, nimi.Refuse(runtimev1.ReasonCode_APP_SCOPE_FORBIDDEN, "from_app_id is not the caller's")
	}
	opt, err := protocol.ParseKey(headerKey, c.Request.Header[headerKey])
	if err != nil {
		return nil, err
	}
	id := c.NewKeyedRun("msg_", "runtime\x00message\x00"+m.GetFromAppId(), opt)
	e := &runtimev1.AppMessageEvent{EventType: runtimev1.AppMessageEventType_APP_MESSAGE_EVENT_RECEIVED, MessageId: id,
		FromAppId: m.GetFromAppId(), ToAppId: m.GetToAppId(),
		SubjectUserId: m.GetSubjectUserId(), MessageType: m.GetMessageType(), Payload: m.GetPayload(), TraceId: id}
	text, err := encodeMessage(e, protojson.MarshalOptions{})
	if err != nil {
		return nil, err
	}
	if len(text) > maxPayload {
		return nil, nimi.Refuse(runtimev1.ReasonCode_APP_MESSAGE_PAYLOAD_TOO_LARGE, "%d bytes, %d allowed", len(text),
			maxPayload)
	}
	opt.Whole = true
	_, err = c.Append(ctx, nimi.MessageRun(m.GetToAppId()),
		[]schema.Event{{Type: nimi.FeedType(nimi.StreamMessage), Actor: "user", Payload: text}}, opt)
	if err != nil {
		return nil, err
	}
	return &runtimev1.SendAppMessageResponse{MessageId: id, Accepted: true,
		ReasonCode: runtimev1.ReasonCode_ACTION_EXECUTED}, nil
}
