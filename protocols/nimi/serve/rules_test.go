package serve_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/protocols/nimi/serve"
)

// TestModes walks all streaming methods of the contract: each is served, in the mode of the table (K-STREAM-008).
func TestModes(t *testing.T) {
	want := map[string]dialect.Mode{
		"RuntimeAiService/StreamScenario": 'A', "RuntimeAiService/SubscribeScenarioJobEvents": 'B',
		"RuntimeWorkflowService/SubscribeWorkflowEvents": 'B',
		"RuntimeAuditService/ExportAuditEvents":          'C', "RuntimeAuditService/SubscribeRuntimeHealthEvents": 'D',
		"RuntimeAuditService/SubscribeAIProviderHealthEvents": 'D',
		"RuntimeAccountService/SubscribeAccountSessionEvents": 'D',
		"RuntimeCognitionService/SubscribeMemoryEvents":       'D', "RuntimeAgentService/SubscribeAgentEvents": 'D',
		"RuntimeAppService/SubscribeAppMessages": 'D', "RuntimeAiRealtimeService/ReadRealtimeEvents": 'D',
		"RuntimeLocalService/WatchLocalTransfers": 'D',
	}
	served, unary := map[string]dialect.Mode{}, map[string]bool{}
	for _, st := range serve.Protocol(serve.Config{}).Streams {
		served[strings.TrimPrefix(st.Pattern, "POST "+prefix)] = st.Mode
	}
	for _, rt := range serve.Protocol(serve.Config{}).Routes {
		unary[strings.TrimPrefix(rt.RPC, prefix)] = true
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal((nimi.Dialect{}).Info().Files[0], &set); err != nil {
		t.Fatal(err)
	}
	streams := 0
	for _, f := range set.GetFile() {
		for _, s := range f.GetService() {
			for _, m := range s.GetMethod() {
				name := s.GetName() + "/" + m.GetName()
				if !m.GetServerStreaming() {
					if !unary[name] {
						t.Errorf("%s is not served", name)
					}
					continue
				}
				streams++
				if served[name] == 0 || served[name] != want[name] {
					t.Errorf("%s is of mode %c, want %c", name, served[name], want[name])
				}
			}
		}
	}
	if streams != len(want) || len(served) != len(want) {
		t.Errorf("%d streams in the contract, %d served", streams, len(served))
	}
}

// TestReflection calls a method as grpcurl does: with nothing but what reflection tells.
func TestReflection(t *testing.T) {
	n := start(t)
	st, err := reflectionpb.NewServerReflectionClient(n.cc).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = st.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "nimi.runtime.v1.RuntimeAiService"}})
	res, rerr := st.Recv()
	if err := errors.Join(err, rerr, st.CloseSend()); err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, b := range res.GetFileDescriptorResponse().GetFileDescriptorProto() {
		f := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(b, f); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, f)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName("nimi.runtime.v1.StreamScenarioRequest")
	if err != nil {
		t.Fatal(err)
	}
	in := dynamicpb.NewMessageType(d.ParentFile().Messages().ByName("StreamScenarioRequest")).New().Interface()
	b, err := proto.Marshal(ask())
	if err == nil {
		err = proto.Unmarshal(b, in)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := dynamicpb.NewMessage(d.ParentFile().Messages().ByName("StreamScenarioEvent"))
	if err := open(with(t), n, "RuntimeAiService/StreamScenario", in,
		func() *dynamicpb.Message { return out }).st.RecvMsg(out); err != nil || !strings.Contains(out.String(), "started") {
		t.Errorf("%v, %v", out, err)
	}
}

// TestKStream011 lets a client that does not read wait: the log is the queue, so nothing is dropped, however much it
// is.
func TestKStream011(t *testing.T) {
	n := start(t)
	o, run := n.scenario(with(t), ask())
	piece, want := strings.Repeat("0123456789abcdef", 512), 0
	for range 64 {
		n.Say(run, text(piece), text(piece))
		want += 2 * len(piece)
	}
	n.Say(run, over("done", ""))
	list, err := o.rest()
	got := 0
	for _, e := range list {
		got += len(e.GetDelta().GetText().GetText())
	}
	if err != nil || got != want || list[len(list)-1].GetCompleted() == nil {
		t.Errorf("%d bytes of %d, %v", got, want, err)
	}
}

// TestKStream013: nothing is executed twice. A client that was cut asks again with its key, on another node, and gets
// the rest of the same run, which it can tell by the trace id.
func TestKStream013(t *testing.T) {
	all := edgetest.Share()
	n, m := join(t, all), join(t, all)
	o, run := n.scenario(with(t, "x-nimi-idempotency-key", "k"), ask())
	n.Say(run, text("the first piece, which is long enough to be sent"))
	first := o.must().GetDelta().GetText().GetText()
	n.Stop()
	if _, err := o.rest(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	again, same := m.scenario(with(t, "x-nimi-idempotency-key", "k"), ask())
	m.Say(run, text(" and the second piece, behind it"), over("done", ""))
	list, err := again.rest()
	var got strings.Builder
	for _, e := range list {
		got.WriteString(e.GetDelta().GetText().GetText())
	}
	if err != nil || same != run || !strings.HasPrefix(got.String(), first) ||
		list[len(list)-1].GetCompleted() == nil || slices.Index(m.Types(run), "command.message") < 0 {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// TestRollingRestart replaces two nodes one after the other under many streams: each ends with OK behind a terminal
// event, or with CANCELLED and none, and what was cut is read to its end elsewhere.
func TestRollingRestart(t *testing.T) {
	const streams = 100
	all := edgetest.Share()
	n := join(t, all)
	var runs []string
	var opens []*opened[*runtimev1.StreamScenarioEvent]
	for range streams {
		o, run := n.scenario(with(t), ask())
		runs, opens = append(runs, run), append(opens, o)
	}
	next := join(t, all)
	var group sync.WaitGroup
	cut := make([]bool, streams)
	for i, o := range opens {
		group.Go(func() {
			list, err := o.rest()
			terminal := len(list) > 0 && list[len(list)-1].GetCompleted() != nil
			if cut[i] = err != nil; cut[i] == terminal || cut[i] && status.Code(err) != codes.Canceled {
				t.Errorf("stream %d: %d events, %v", i, len(list), err)
			}
		})
	}
	for i, run := range runs {
		n.Say(run, text("some text of more than thirty-two bytes"), over("done", ""))
		if i == streams/2 {
			go n.Stop()
		}
	}
	group.Wait()
	n.Stop()
	for i, run := range runs {
		if !cut[i] {
			continue
		}
		list, err := open(with(t), next, "RuntimeAiService/SubscribeScenarioJobEvents",
			&runtimev1.SubscribeScenarioJobEventsRequest{JobId: run}, jobEvent).rest()
		if err != nil || list[len(list)-1].GetJob().GetStatus() != 4 {
			t.Errorf("run %d: %v, %v", i, list, err)
		}
	}
}
