package serve_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// TestDeadlineOfAStream: nobody answers the run, and the node that serves its stream ends it when its time is over. Two
// nodes end it once.
func TestDeadlineOfAStream(t *testing.T) {
	all := edgetest.Share()
	n, m := join(t, all), join(t, all)
	short := func(m *runtimev1.StreamScenarioRequest) { m.Head.TimeoutMs = 300 }
	o, run := n.scenario(with(t), ask(short))
	job := open(with(t), m, "RuntimeAiService/SubscribeScenarioJobEvents",
		&runtimev1.SubscribeScenarioJobEventsRequest{JobId: run}, jobEvent)
	list, err := o.rest()
	if err != nil || len(list) != 1 || list[0].GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT {
		t.Errorf("%v, %v", list, err)
	}
	states, err := job.rest()
	if err != nil || states[len(states)-1].GetJob().GetStatus() != runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_TIMEOUT {
		t.Errorf("%v, %v", states, err)
	}
	if types := n.Types(run); !slices.Equal(types,
		[]string{"session.created", "command.message", "commands.taken", "run.lifecycle"}) {
		t.Error(types)
	}
}

// leaving asks for a scenario that is cancelled with its last client.
func leaving(m *runtimev1.StreamScenarioRequest) {
	s, _ := structpb.NewStruct(map[string]any{"on_disconnect": "cancel"})
	m.Extensions = []*runtimev1.ScenarioExtension{{Namespace: "agentstream", Payload: s}}
}

// TestLastClientLeaves: a run is cancelled when the last of its clients has left, on whatever node; not when a node
// goes away, and not where nobody asked for it.
func TestLastClientLeaves(t *testing.T) {
	all := edgetest.Share()
	n, m := join(t, all), join(t, all)
	count := func(run, typ string) (many int) {
		for _, name := range m.Types(run) {
			if name == typ {
				many++
			}
		}
		return many
	}
	first, leave := context.WithCancel(with(t, "x-nimi-idempotency-key", "k"))
	second, leaveToo := context.WithCancel(with(t, "x-nimi-idempotency-key", "k"))
	_, run := n.scenario(first, ask(leaving))
	_, same := m.scenario(second, ask(leaving))
	if same != run {
		t.Fatal(same, run)
	}
	leave()
	edgetest.Eventually(t, "the first has left", func() bool { return count(run, "custom.runtime.clients") == 2 })
	if count(run, "command.cancel") > 0 {
		t.Error("cancelled under a client")
	}
	leaveToo()
	edgetest.Eventually(t, "it is cancelled", func() bool { return count(run, "command.cancel") == 1 })

	other, leaveOther := context.WithCancel(with(t))
	_, kept := n.scenario(other, ask())
	drained, drainedRun := n.scenario(with(t, "x-nimi-idempotency-key", "d"), ask(leaving))
	leaveOther()
	n.Stop()
	if _, err := drained.rest(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if types := strings.Join(m.Types(drainedRun), " "); types != "session.created command.message custom.runtime.clients" {
		t.Error(types)
	}
	if types := m.Types(kept); len(types) != 2 {
		t.Error(types)
	}
	again, leaveAgain := context.WithCancel(with(t, "x-nimi-idempotency-key", "d"))
	m.scenario(again, ask(leaving))
	leaveAgain()
	edgetest.Eventually(t, "it is cancelled", func() bool { return count(drainedRun, "command.cancel") == 1 })

	o, over := m.scenario(with(t), ask(leaving))
	m.Say(over, edgetest.Event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))
	if _, err := o.rest(); err != nil {
		t.Error(err)
	}
	if types := m.Types(over); len(types) != 3 {
		t.Error(types)
	}
}

// TestClosedSession: an error makes clients forget what they have not read, so it comes at least 100 ms behind the last
// event.
func TestClosedSession(t *testing.T) {
	slowly(t, func(t *testing.T, n *node) {
		n.Say("s", edgetest.Event(schema.TypeSessionCreated, `{"app_id":"app","model":"demo","runtime":{"as":"realtime"}}`))
		r := n.raw("RuntimeAiRealtimeService/ReadRealtimeEvents", &runtimev1.ReadRealtimeEventsRequest{SessionId: "s"})
		synctest.Wait()
		n.Say("s", over("done", ""))
		synctest.Wait()
		list := read(t, r, liveEvent)
		if len(list) != 2 || list[1].GetCompleted() == nil {
			t.Fatalf("%v", list)
		}
		time.Sleep(100 * time.Millisecond)
		select {
		case <-r.Done():
			t.Error("ended at once")
		default:
		}
		if end := r.WaitEnd(time.Minute); end != "1 the session is closed" {
			t.Errorf("ended with %q", end)
		}
	})
}
