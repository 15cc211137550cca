package nimi

import (
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// Names of the streams; those of feeds are the feeds'.
const (
	StreamScenario = "scenario"
	StreamJob      = "job"
	StreamWorkflow = "workflow"
	StreamRealtime = "realtime"
	StreamAgent    = "agent"
	StreamAccount  = "account"
	StreamMemory   = "memory"
	StreamMessage  = "message" // one feed for each receiving app
	StreamTransfer = "transfer"
	StreamProvider = "provider"
	StreamHealth   = "health"
	StreamExport   = "export"
)

// Largest request messages, in bytes.
const (
	MaxMessage  = 64 << 10
	MaxScenario = 1 << 20
)

// Dialect is the runtime protocol.
type Dialect struct{}

// Info names the protocol. Where its streams are served, its registration says.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "runtime", Files: [][]byte{files()}} }

// files returns the descriptors of the contract, with all that they import. They are encoded once: what asks for the
// name of a dialect asks for Info.
var files = sync.OnceValue(func() []byte {
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range []protoreflect.FileDescriptor{
		runtimev1.File_nimi_runtime_v1_scenarios_proto, runtimev1.File_nimi_runtime_v1_realtime_proto,
		runtimev1.File_nimi_runtime_v1_workflows_proto,
		runtimev1.File_nimi_runtime_v1_audits_proto, runtimev1.File_nimi_runtime_v1_accounts_proto,
		runtimev1.File_nimi_runtime_v1_memories_proto,
		runtimev1.File_nimi_runtime_v1_agents_proto, runtimev1.File_nimi_runtime_v1_messages_proto,
		runtimev1.File_nimi_runtime_v1_transfers_proto,
	} {
		add(f)
	}
	b, _ := proto.Marshal(set) // it was unmarshalled before
	return b
})

// RunID takes an id of a request. One that no run can have is answered as one that no run has.
func RunID(id string, none runtimev1.ReasonCode) (string, error) {
	if schema.ValidRunID(id) != nil {
		return "", Refuse(none, "there is no such id")
	}
	return id, nil
}

// requests make the messages that ask for streams that are read.
var requests = map[string]func() proto.Message{
	StreamJob:      func() proto.Message { return &runtimev1.SubscribeScenarioJobEventsRequest{} },
	StreamWorkflow: func() proto.Message { return &runtimev1.SubscribeWorkflowEventsRequest{} },
	StreamRealtime: func() proto.Message { return &runtimev1.ReadRealtimeEventsRequest{} },
	StreamAgent:    func() proto.Message { return &runtimev1.SubscribeAgentEventsRequest{} },
	StreamAccount:  func() proto.Message { return &runtimev1.SubscribeAccountSessionEventsRequest{} },
	StreamMemory:   func() proto.Message { return &runtimev1.SubscribeMemoryEventsRequest{} },
	StreamMessage:  func() proto.Message { return &runtimev1.SubscribeAppMessagesRequest{} },
	StreamTransfer: func() proto.Message { return &runtimev1.WatchLocalTransfersRequest{} },
	StreamProvider: func() proto.Message { return &runtimev1.SubscribeAIProviderHealthEventsRequest{} },
}

// Open reads a request for a stream that is read: of a run, or of a feed, which is silent while nobody has fed it.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	m, err := Read(in.Body, requests[in.Stream]())
	if err != nil {
		return req, err
	}
	req = dialect.Request{Stream: in.Stream, Run: FeedRun(in.Stream), Await: true, Kept: true}
	if m, ok := m.(interface{ GetAfterSequence() uint64 }); ok {
		req.Cursor.Seq = schema.Seq(m.GetAfterSequence())
	}
	if m, ok := m.(interface{ GetCursor() string }); ok {
		req.Cursor.Seq, _ = cursor(m.GetCursor()) // Read has looked at it
	}
	run := func(id string, none runtimev1.ReasonCode) {
		req.Await, req.Kept = false, false
		req.Run, err = RunID(id, none)
	}
	switch m := m.(type) {
	case *runtimev1.SubscribeScenarioJobEventsRequest:
		run(m.GetJobId(), runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_FOUND)
	case *runtimev1.SubscribeWorkflowEventsRequest:
		run(m.GetTaskId(), runtimev1.ReasonCode_WF_TASK_NOT_FOUND)
	case *runtimev1.ReadRealtimeEventsRequest:
		run(m.GetSessionId(), runtimev1.ReasonCode_AI_REALTIME_SESSION_NOT_FOUND)
	case *runtimev1.SubscribeAgentEventsRequest:
		run(m.GetAgentId(), runtimev1.ReasonCode_AI_MEDIA_JOB_NOT_FOUND)
		req.Newest, req.Form = m.GetCursor() == "", kinds(m.GetEventFilters())
	case *runtimev1.SubscribeMemoryEventsRequest:
		req.Form = kinds(m.GetScopeFilters())
	case *runtimev1.SubscribeAppMessagesRequest:
		req.Run, req.Form = MessageRun(m.GetAppId()), strings.Join(m.GetFromAppIds(), "\n")
	case *runtimev1.SubscribeAIProviderHealthEventsRequest:
		req.Newest, req.Kept = true, false
	}
	return req, err
}

// kinds is the Form of a request for some kinds of messages; "" is all.
func kinds[E ~int32](list []E) (form string) {
	for _, e := range list {
		form += string(rune('0' + e))
	}
	return form
}

// among reports whether a kind is one of those of a Form.
func among[E ~int32](form string, e E) bool {
	return form == "" || strings.ContainsRune(form, rune('0'+e))
}

// sequence reads the number of the last message that a client has.
func sequence(n uint64) (schema.Seq, error) {
	if n > uint64(schema.MaxSeq) {
		return 0, badCursor()
	}
	return schema.Seq(n), nil
}

// cursor reads one that is a decimal in a string; "" is none.
func cursor(text string) (schema.Seq, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, badCursor()
	}
	return sequence(n)
}

func badCursor() error { return refuseMalformed("the cursor is not a sequence") }

// Projector returns the translation for a request; for nobody in particular the fold of a run.
func (Dialect) Projector(req dialect.Request) dialect.Projector {
	switch req.Stream {
	case StreamScenario:
		return &scenario{encoder: encoder{run: req.Run}}
	case StreamAgent:
		return &agent{run: req.Run, form: req.Form}
	case StreamMemory, StreamMessage, StreamTransfer:
		return newFeed(req)
	}
	return (&Job{}).For(req)
}

// AppendError writes the reason for clients of plain HTTP, which there are none of.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }
