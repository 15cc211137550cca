package serve

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Metadata, in the form in which an edge has it.
const (
	headerApp      = "X-Nimi-App-Id"
	headerKey      = "X-Nimi-Idempotency-Key"
	headerSource   = "X-Nimi-Key-Source"
	headerProvider = "X-Nimi-Provider-Api-Key"
	headerSecret   = "X-Nimi-Access-Token-Secret"
	headerVersion  = "X-Nimi-Runtime-Version"
)

// service is the beginning of the paths of the calls.
const service = "/nimi.runtime.v1."

// slow is how long a write to a client may take (K-STREAM-012).
const slow = 5 * time.Second

// Config sets the protocol up.
type Config struct {
	// Version is that of this server: a semantic version, with or without a "v". Clients refuse another major than 0,
	// so they are told 0 and its first two numbers. Anything else: 0.0.0.
	Version string
}

// version is what clients get.
func version(own string) string {
	if m := regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(own); m == nil {
		return "0.0.0"
	} else if m[1] == "0" {
		return "0." + m[2] + "." + m[3]
	} else {
		return "0." + m[1] + "." + m[2]
	}
}

// Protocol returns the dialect with its calls.
func Protocol(cfg Config) protocol.Protocol {
	return protocol.Protocol{
		Dialect: nimi.Dialect{}, Routes: routes(), Key: headerSecret, Slow: slow, LastWords: lastWords,
		Unread:   nimi.Unread,
		Envelope: envelope, Header: http.Header{headerVersion: {version(cfg.Version)}},
		Streams: allStreams(),
	}
}

// latestProviders is how many of the newest states of providers a client is shown that is behind them.
const latestProviders = 16

// allStreams are the streams of runs and feeds, and those of no run.
func allStreams() []protocol.Stream {
	of := func(name, method string, mode dialect.Mode) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: "POST " + service + method, Transport: dialect.GRPC, Mode: mode,
			MaxMessage: nimi.MaxMessage}
	}
	scenario := of(nimi.StreamScenario, "RuntimeAiService/StreamScenario", dialect.ModeA)
	scenario.MaxMessage = nimi.MaxScenario
	providers := of(nimi.StreamProvider, "RuntimeAuditService/SubscribeAIProviderHealthEvents", dialect.ModeD)
	providers.Latest = latestProviders
	return []protocol.Stream{
		{Stream: scenario, Begin: stream, Around: scenarioAlive},
		{Stream: of(nimi.StreamJob, "RuntimeAiService/SubscribeScenarioJobEvents", dialect.ModeB), Admit: admit(nil),
			Around: alive},
		{Stream: of(nimi.StreamWorkflow, "RuntimeWorkflowService/SubscribeWorkflowEvents", dialect.ModeB),
			Admit: admit(nil), Around: alive},
		{Stream: of(nimi.StreamRealtime, "RuntimeAiRealtimeService/ReadRealtimeEvents", dialect.ModeD),
			Admit: admit(ofRealtime), Around: closing},
		{Stream: of(nimi.StreamAgent, "RuntimeAgentService/SubscribeAgentEvents", dialect.ModeD), Admit: admit(ofAgent)},
		{Stream: of(nimi.StreamAccount, "RuntimeAccountService/SubscribeAccountSessionEvents", dialect.ModeD),
			Admit: ofAccount},
		{Stream: of(nimi.StreamMemory, "RuntimeCognitionService/SubscribeMemoryEvents", dialect.ModeD)},
		{Stream: of(nimi.StreamMessage, "RuntimeAppService/SubscribeAppMessages", dialect.ModeD), Admit: ofMessages},
		{Stream: of(nimi.StreamTransfer, "RuntimeLocalService/WatchLocalTransfers", dialect.ModeD)},
		{Stream: providers},
		{Stream: of(nimi.StreamHealth, "RuntimeAuditService/SubscribeRuntimeHealthEvents", dialect.ModeD), Serve: health},
		{Stream: of(nimi.StreamExport, "RuntimeAuditService/ExportAuditEvents", dialect.ModeC), Serve: export},
	}
}

// envelope returns what is wrong with the form of a call: its metadata, and its message.
func envelope(in dialect.Input) error {
	if _, err := protocol.ParseKey(headerKey, in.Header[headerKey]); err != nil {
		return err
	}
	return nimi.Envelope(in.Stream, in.Body)
}

// call is a unary method whose messages are an I and an O.
func call[T any, I interface {
	*T
	proto.Message
}, O proto.Message](method string, needs auth.Scope,
	serve func(context.Context, *protocol.Call, I) (O, error)) protocol.Route {
	return protocol.Route{
		RPC: service + method, MaxMessage: nimi.MaxMessage, Needs: needs, Writes: needs == auth.ScopeWrite,
		Serve: protocol.WithLogTimeout(func(ctx context.Context, c *protocol.Call) error {
			body, err := c.Message()
			if err != nil {
				return err
			}
			m, err := nimi.Read(body, I(new(T)))
			if err != nil {
				return err
			}
			answer, err := serve(ctx, c, m)
			if err != nil {
				return err
			}
			b, err := proto.Marshal(answer)
			if err == nil {
				c.Reply(http.StatusOK, b)
			}
			return err
		}),
	}
}

func routes() []protocol.Route {
	large := func(rt protocol.Route) protocol.Route { rt.MaxMessage = nimi.MaxScenario; return rt }
	return []protocol.Route{
		large(call("RuntimeAiService/SubmitScenarioJob", auth.ScopeWrite, submitJob)),
		large(call("RuntimeWorkflowService/SubmitWorkflow", auth.ScopeWrite, submitWorkflow)),
		call("RuntimeAiService/GetScenarioJob", auth.ScopeRead, getJob),
		call("RuntimeAiService/CancelScenarioJob", auth.ScopeCommand, cancelJob),
		call("RuntimeAiService/GetScenarioArtifacts", auth.ScopeRead, artifacts),
		call("RuntimeWorkflowService/GetWorkflow", auth.ScopeRead, getWorkflow),
		call("RuntimeWorkflowService/CancelWorkflow", auth.ScopeCommand, cancelWorkflow),
		call("RuntimeAiRealtimeService/OpenRealtimeSession", auth.ScopeWrite, openRealtime),
		call("RuntimeAiRealtimeService/AppendRealtimeInput", auth.ScopeCommand, appendRealtime),
		call("RuntimeAiRealtimeService/CloseRealtimeSession", auth.ScopeCommand, closeRealtime),
		call("RuntimeAuditService/GetRuntimeHealth", auth.ScopeRead, getHealth),
		call("RuntimeAuditService/ListAIProviderHealth", auth.ScopeRead, listProviders),
		call("RuntimeAuditService/ListAuditEvents", auth.ScopeRead, listAudit),
		call("RuntimeAccountService/GetAccountSessionStatus", auth.ScopeRead, accountStatus),
		call("RuntimeLocalService/ListLocalTransfers", auth.ScopeRead, listTransfers),
		call("RuntimeAppService/SendAppMessage", auth.ScopeWrite, sendMessage),
	}
}

// reasons are those of refusals that the protocol did not name itself.
var reasons = map[dialect.Reason]string{
	dialect.ReasonUnauthorized: "AUTH_TOKEN_INVALID", dialect.ReasonCredentialExpired: "AUTH_TOKEN_INVALID",
	dialect.ReasonForbidden: "PRINCIPAL_UNAUTHORIZED",
	dialect.ReasonKeyReused: "AI_MEDIA_IDEMPOTENCY_CONFLICT", dialect.ReasonRunEnded: "AI_REALTIME_SESSION_CLOSED",
	dialect.ReasonLimited: "AI_PROVIDER_RATE_LIMITED", dialect.ReasonBusy: "AI_PROVIDER_RATE_LIMITED",
	dialect.ReasonFull:        "AI_PROVIDER_RATE_LIMITED",
	dialect.ReasonUnavailable: "AI_PROVIDER_UNAVAILABLE", dialect.ReasonUnanswered: "AI_PROVIDER_UNAVAILABLE",
	dialect.ReasonConflict:        "AI_PROVIDER_UNAVAILABLE",
	dialect.ReasonAuthUnavailable: "AI_PROVIDER_UNAVAILABLE", dialect.ReasonShutdown: "AI_PROVIDER_UNAVAILABLE",
	dialect.ReasonInternal:   "AI_PROVIDER_INTERNAL",
	dialect.ReasonSlowClient: "AI_STREAM_BROKEN", dialect.ReasonOverflow: "AI_STREAM_BROKEN",
}

// lastWords sets the end of a call: the status, the name of the reason, and google.rpc.ErrorInfo.
func lastWords(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
	switch {
	case why.Reason == dialect.ReasonEnded:
		if st.Mode == dialect.ModeD && begun { // what was watched is over
			*end = transport.End{GRPC: nimi.Cancelled, Message: "the session is closed"}
		}
		return
	case why.Reason == dialect.ReasonShutdown && begun:
		*end = transport.End{GRPC: nimi.Cancelled, Message: "runtime is stopping"}
		return
	}
	name := why.Named
	if name == "" {
		name = reasons[why.Reason]
	}
	switch {
	case name != "":
	case why.Reason == dialect.ReasonNotFound:
		name = notFound(st.Name)
	default:
		name = runtimev1.ReasonCode_PROTOCOL_ENVELOPE_INVALID.String()
	}
	switch {
	case why.Named != "" || why.Reason == dialect.ReasonNotFound:
		end.GRPC = nimi.StatusOf(name)
	case why.Reason == dialect.ReasonConflict, why.Reason == dialect.ReasonShutdown:
		end.GRPC = nimi.Unavailable
	}
	retry := why.Reason != dialect.ReasonTooLarge && (end.GRPC == nimi.Unavailable || end.GRPC == nimi.ResourceExhausted)
	end.Code, end.Message = "", name
	if why.Reason == dialect.ReasonTooLarge { // clients take its status for one after which they may try again
		end.Message = string(jsonscan.Object("{").Str("reasonCode", name).Str("actionHint", why.Message).Str("traceId",
			why.RequestID).Bool("retryable", false).End())
	}
	end.Details = []*anypb.Any{errorInfo(name, why.Message, why.RequestID, retry)}
}

// notFound is the reason for what a method does not find.
func notFound(method string) string {
	switch {
	case strings.Contains(method, "Workflow"), method == nimi.StreamWorkflow:
		return runtimev1.ReasonCode_WF_TASK_NOT_FOUND.String()
	case strings.Contains(method, "Realtime"), method == nimi.StreamRealtime:
		return runtimev1.ReasonCode_AI_REALTIME_SESSION_NOT_FOUND.String()
	}
	return runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_FOUND.String()
}

// errorInfo encodes a google.rpc.ErrorInfo.
func errorInfo(reason, hint, trace string, retry bool) *anypb.Any {
	text := func(b []byte, field protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	b := text(text(nil, 1, reason), 2, "nimi.runtime.v1")
	for _, m := range [][2]string{{"action_hint", hint}, {"trace_id", trace}, {"retryable", strconv.FormatBool(retry)}} {
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), text(text(nil, 1, m[0]), 2, m[1]))
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: b}
}

// admit lets the caller's app at a stream of a run, if then does; nil lets everyone.
func admit(then func(head schema.Head, req *dialect.Request) error) func(*protocol.Call, *dialect.Request) error {
	return func(c *protocol.Call, req *dialect.Request) error {
		ctx, cancel := c.LogContext()
		defer cancel()
		head, err := c.Head(ctx, req.Run)
		if err != nil {
			return err
		}
		for r, err := range c.Records(ctx, req.Run, 0, 1) {
			if err == nil && string(r.Type) == schema.TypeSessionCreated {
				err = ofApp(c, nimi.ReadScenario(r.Payload()))
			}
			if err != nil {
				return err
			}
		}
		if then == nil {
			return nil
		}
		return then(head, req)
	}
}

// ofApp refuses what another app than the caller's has begun.
func ofApp(c *protocol.Call, s nimi.Scenario) error {
	if s.App != "" && s.App != appOf(c) {
		return nimi.Refuse(runtimev1.ReasonCode_APP_SCOPE_FORBIDDEN, "it is another app's")
	}
	return nil
}

// ofRealtime lets clients at a session. One that has all of a session that was closed gets that as its end.
func ofRealtime(head schema.Head, req *dialect.Request) error {
	if head.State.Final() && req.Cursor.Seq >= head.Last {
		return nimi.Refuse(runtimev1.ReasonCode_AI_REALTIME_SESSION_CLOSED, "the session is closed")
	}
	return nil
}

// ofAgent lets clients at an agent's events, from now on without a cursor.
func ofAgent(head schema.Head, req *dialect.Request) error {
	if req.Newest {
		req.Newest, req.Cursor.Seq = false, head.Last
	}
	return nil
}
