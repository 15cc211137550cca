package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// runtimeKind is one of the streaming methods.
type runtimeKind struct {
	name, method string
	mode         byte
	ask          func(run string, last uint64) proto.Message
	make         func() proto.Message
	terminal     func(proto.Message) bool // nil: it has none
	numbered     bool                     // by the log, and a number resumes
}

// runtimeKinds are all of them, as docs/dialects/runtime.md has them in its table of modes.
var runtimeKinds = []runtimeKind{
	{"scenario", runtimeService + "AiService/StreamScenario", 'A',
		func(run string, _ uint64) proto.Message { return textScenario("m", run) },
		func() proto.Message { return &runtimev1.StreamScenarioEvent{} }, func(m proto.Message) bool {
			e := m.(*runtimev1.StreamScenarioEvent)
			return e.GetCompleted() != nil || e.GetFailed() != nil
		}, false},
	{"job", runtimeService + "AiService/SubscribeScenarioJobEvents", 'B', func(run string, _ uint64) proto.Message {
		return &runtimev1.SubscribeScenarioJobEventsRequest{JobId: run}
	}, func() proto.Message { return &runtimev1.ScenarioJobEvent{} }, func(m proto.Message) bool {
		return m.(*runtimev1.ScenarioJobEvent).GetEventType() >= runtimev1.ScenarioJobEventType_SCENARIO_JOB_EVENT_COMPLETED
	}, false},
	{"workflow", runtimeService + "WorkflowService/SubscribeWorkflowEvents", 'B',
		func(run string, _ uint64) proto.Message {
			return &runtimev1.SubscribeWorkflowEventsRequest{TaskId: run}
		}, func() proto.Message { return &runtimev1.WorkflowEvent{} }, func(m proto.Message) bool {
			switch m.(*runtimev1.WorkflowEvent).GetEventType() {
			case runtimev1.WorkflowEventType_WORKFLOW_EVENT_COMPLETED, runtimev1.WorkflowEventType_WORKFLOW_EVENT_FAILED, runtimev1.WorkflowEventType_WORKFLOW_EVENT_CANCELED:
				return true
			}
			return false
		}, false},
	{"export", runtimeService + "AuditService/ExportAuditEvents", 'C', func(string, uint64) proto.Message {
		return &runtimev1.ExportAuditEventsRequest{}
	}, func() proto.Message { return &runtimev1.AuditExportChunk{} },
		func(m proto.Message) bool { return m.(*runtimev1.AuditExportChunk).GetEof() }, false},
	{"agent", runtimeService + "AgentService/SubscribeAgentEvents", 'D', func(run string, last uint64) proto.Message {
		return &runtimev1.SubscribeAgentEventsRequest{AgentId: run, Cursor: strconv.FormatUint(last, 10)}
	}, func() proto.Message { return &runtimev1.AgentEvent{} }, nil, true},
	{"realtime", runtimeService + "AiRealtimeService/ReadRealtimeEvents", 'D',
		func(run string, last uint64) proto.Message {
			return &runtimev1.ReadRealtimeEventsRequest{SessionId: run, AfterSequence: last}
		}, func() proto.Message { return &runtimev1.RealtimeEvent{} },
		func(m proto.Message) bool { return m.(*runtimev1.RealtimeEvent).GetCompleted() != nil }, true},
	{"account", runtimeService + "AccountService/SubscribeAccountSessionEvents", 'D',
		func(_ string, last uint64) proto.Message {
			return &runtimev1.SubscribeAccountSessionEventsRequest{AfterSequence: last}
		}, func() proto.Message { return &runtimev1.AccountSessionEvent{} }, nil, false},
	{"memory", runtimeService + "CognitionService/SubscribeMemoryEvents", 'D', func(_ string, last uint64) proto.Message {
		return &runtimev1.SubscribeMemoryEventsRequest{Cursor: strconv.FormatUint(last, 10)}
	}, func() proto.Message { return &runtimev1.MemoryEvent{} }, nil, true},
	{"message", runtimeService + "AppService/SubscribeAppMessages", 'D', func(_ string, last uint64) proto.Message {
		return &runtimev1.SubscribeAppMessagesRequest{AppId: runtimeApp, Cursor: strconv.FormatUint(last, 10)}
	}, func() proto.Message { return &runtimev1.AppMessageEvent{} }, nil, true},
	{"transfer", runtimeService + "LocalService/WatchLocalTransfers", 'D', func(string, uint64) proto.Message {
		return &runtimev1.WatchLocalTransfersRequest{}
	}, func() proto.Message { return &runtimev1.LocalTransferProgressEvent{} }, nil, false},
	{"provider", runtimeService + "AuditService/SubscribeAIProviderHealthEvents", 'D', func(string, uint64) proto.Message {
		return &runtimev1.SubscribeAIProviderHealthEventsRequest{}
	}, func() proto.Message { return &runtimev1.AIProviderHealthEvent{} }, nil, false},
	{"health", runtimeService + "AuditService/SubscribeRuntimeHealthEvents", 'D', func(string, uint64) proto.Message {
		return &runtimev1.SubscribeRuntimeHealthEventsRequest{}
	}, func() proto.Message { return &runtimev1.RuntimeHealthEvent{} }, nil, false},
	{"watch", "/grpc.health.v1.Health/Watch", 'D',
		func(string, uint64) proto.Message { return &grpc_health_v1.HealthCheckRequest{} },
		func() proto.Message { return &grpc_health_v1.HealthCheckResponse{} }, nil, false},
}

// says holds how a call ended to what the table of modes says of that. n messages came; terminal: the last one is.
func (k *runtimeKind) says(code codes.Code, n int, terminal bool) error {
	switch {
	case code == codes.OK && k.mode != 'D' && terminal: // it is over
	case code == codes.Canceled && (k.mode == 'A' || k.mode == 'B') && !terminal, code == codes.Canceled && k.mode == 'D':
		// the node went away
	case code == codes.Unavailable && n == 0: // nothing has begun
	default:
		return fmt.Errorf("%s, of mode %c, ended with %s behind %d messages, terminal: %t", k.name, k.mode, code, n, terminal)
	}
	return nil
}

// restartClient is one client: it comes again where a node went away.
type restartClient struct {
	*runtimeKind
	app, run, key string
	last          uint64       // number of the newest message
	begun         atomic.Int64 // calls that the server has taken
	seen          atomic.Int64 // messages
	ends          map[codes.Code]int
}

// watch makes one call. It reports whether what is watched is over, and returns an error about an end that does not say
// what has happened.
func (c *restartClient) watch(ctx context.Context, conn *grpc.ClientConn) (over bool, err error) {
	n := 0
	s, err := openRuntime(asApp(ctx, c.app, c.key), conn, c.method, c.ask(c.run, c.last))
	if err == nil {
		if _, err = s.Header(); err == nil {
			c.begun.Add(1)
		}
	}
	for ; err == nil; n++ {
		m := c.make()
		if err = s.RecvMsg(m); err != nil {
			break
		}
		if over {
			return over, fmt.Errorf("%s: %v behind the terminal message", c.name, m)
		}
		over = c.terminal != nil && c.terminal(m)
		if f := m.ProtoReflect().Descriptor().Fields().ByName("sequence"); f != nil {
			seq := m.ProtoReflect().Get(f).Uint()
			if c.numbered && seq <= c.last || !c.numbered && c.mode < 'C' && seq != uint64(n+1) || c.mode == 'C' &&
				seq != uint64(n) {
				return over, fmt.Errorf("%s: number %d behind %d and %d messages of the stream", c.name, seq, c.last, n)
			}
			c.last = seq
		}
		c.seen.Add(1)
	}
	if ctx.Err() != nil {
		return over, nil // the client has left
	}
	code := codes.OK
	if !errors.Is(err, io.EOF) {
		code = status.Code(err)
	}
	c.ends[code]++
	if wrong := c.says(code, n, over); wrong != nil {
		return over, fmt.Errorf("%w: %w", wrong, err)
	}
	return over, nil
}
