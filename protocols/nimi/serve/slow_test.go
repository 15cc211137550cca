package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// raw calls a stream as a client that takes 64 KiB and then nothing.
func (n *node) raw(method string, in proto.Message) *edgetest.Raw {
	n.T.Helper()
	message, err := proto.Marshal(in)
	if err != nil {
		n.T.Fatal(err)
	}
	if method[0] != '/' {
		method = prefix + method
	}
	conn, err := n.Nodes.Pipes.Dial("", "")
	if err != nil {
		n.T.Fatal(err)
	}
	r, err := edgetest.CallRaw(conn, method, message, "x-nimi-app-id", "app")
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(r.Close)
	return r
}

// read decodes what has come.
func read[M proto.Message](t *testing.T, r *edgetest.Raw, mk func() M) (list []M) {
	t.Helper()
	for _, b := range r.Messages() {
		m := mk()
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// slowly runs a test in a time of its own.
func slowly(t *testing.T, test func(t *testing.T, n *node)) {
	synctest.Test(t, func(t *testing.T) {
		all := edgetest.Share()
		all.Pipes = edgetest.NewPipes()
		test(t, join(t, all))
	})
}

// TestKStream012 has clients that stall with a full window. One that comes back soon gets everything. One that comes
// back late gets what was on its way, the terminal event if the log has it, and RESOURCE_EXHAUSTED. One that does not
// is reset.
func TestKStream012(t *testing.T) {
	const pieces, piece = 40, 8 << 10
	for name, tt := range map[string]struct {
		stall time.Duration
		state string // in which the run has ended by then
		end   string
		last  runtimev1.StreamEventType
	}{
		"soon": {4 * time.Second, "done", "0 ", runtimev1.StreamEventType_STREAM_EVENT_COMPLETED},
		"late": {12 * time.Second, "", "8 AI_STREAM_BROKEN", runtimev1.StreamEventType_STREAM_EVENT_DELTA},
		"late, completed": {12 * time.Second, "done", "8 AI_STREAM_BROKEN",
			runtimev1.StreamEventType_STREAM_EVENT_COMPLETED},
		"late, failed":     {12 * time.Second, "error", "8 AI_STREAM_BROKEN", runtimev1.StreamEventType_STREAM_EVENT_FAILED},
		"never":            {time.Minute, "", "reset INTERNAL_ERROR", runtimev1.StreamEventType_STREAM_EVENT_DELTA},
		"never, completed": {time.Minute, "done", "reset INTERNAL_ERROR", runtimev1.StreamEventType_STREAM_EVENT_DELTA},
	} {
		t.Run(name, func(t *testing.T) {
			slowly(t, func(t *testing.T, n *node) {
				r := n.raw("RuntimeAiService/StreamScenario", ask())
				synctest.Wait()
				list := read(t, r, event)
				var said strings.Builder
				for i := range pieces {
					s := fmt.Sprintf("%*d", piece, i)
					said.WriteString(s)
					n.Say(list[0].GetTraceId(), text(s))
				}
				if tt.state != "" {
					n.Say(list[0].GetTraceId(), over(tt.state, ""))
				}
				begun := time.Now()
				select {
				case <-time.After(tt.stall):
					if err := r.Allow(1 << 30); err != nil {
						t.Fatal(err)
					}
				case <-r.Done():
				}
				if end := r.WaitEnd(time.Minute); end != tt.end {
					t.Errorf("ended with %q, want %q", end, tt.end)
				}
				if took, want := time.Since(begun), min(tt.stall, 30*time.Second); took < want || took > want+time.Second {
					t.Errorf("ended after %v, want %v", took, want)
				}
				list = append(list, read(t, r, event)...)
				got := ""
				for i, e := range list {
					got += e.GetDelta().GetText().GetText()
					if i < len(list)-1 && e.GetSequence() != uint64(i+1) {
						t.Errorf("event %d is %d", i+1, e.GetSequence())
					}
				}
				if !strings.HasPrefix(said.String(), got) || (got == said.String()) != (tt.end == "0 ") || len(got) < 48<<10 {
					t.Errorf("%d bytes came, which are no beginning of what was said, or all", len(got))
				}
				if last := list[len(list)-1]; last.GetEventType() != tt.last {
					t.Errorf("the last event is %v", last.GetEventType())
				} else if tt.last == runtimev1.StreamEventType_STREAM_EVENT_COMPLETED && last.GetSequence() != pieces+2 {
					t.Errorf("the last event is number %d of %d", last.GetSequence(), pieces+2)
				}
			})
		})
	}
}

// TestSlowReaders: so end also jobs, with their terminal event, and what has none: feeds and exports, which are never
// said to be whole.
func TestSlowReaders(t *testing.T) {
	stalled := func(t *testing.T, r *edgetest.Raw) {
		t.Helper()
		time.Sleep(12 * time.Second)
		if err := r.Allow(1 << 30); err != nil {
			t.Fatal(err)
		}
		if end := r.WaitEnd(time.Minute); end != "8 AI_STREAM_BROKEN" {
			t.Errorf("ended with %q", end)
		}
	}
	t.Run("job", func(t *testing.T) {
		slowly(t, func(t *testing.T, n *node) {
			run := "sc_job"
			n.Say(run, edgetest.Event(schema.TypeSessionCreated,
				`{"once":true,"model":"demo","app_id":"app","runtime":{"as":"job","type":"text"}}`))
			for i := range 1000 {
				n.Say(run, edgetest.Event(schema.TypeProgress, fmt.Sprintf(`{"done":%d,"total":1000}`, i)))
			}
			r := n.raw("RuntimeAiService/SubscribeScenarioJobEvents", &runtimev1.SubscribeScenarioJobEventsRequest{JobId: run})
			synctest.Wait()
			n.Say(run, over("done", ""))
			stalled(t, r)
			list := read(t, r, jobEvent)
			if last := list[len(list)-1]; len(list) > 900 || last.GetSequence() != 1002 ||
				last.GetJob().GetStatus() != runtimev1.ScenarioJobStatus_SCENARIO_JOB_STATUS_COMPLETED {
				t.Errorf("%d events, the last is %v", len(list), last)
			}
		})
	})
	t.Run("feed", func(t *testing.T) {
		slowly(t, func(t *testing.T, n *node) {
			for i := range 40 {
				n.Say(nimi.MessageRun("app"), edgetest.Event("custom.runtime.message",
					fmt.Sprintf(`{"messageId":"%*d"}`, 8<<10, i)))
			}
			r := n.raw("RuntimeAppService/SubscribeAppMessages", &runtimev1.SubscribeAppMessagesRequest{AppId: "app"})
			stalled(t, r)
			list := read(t, r, appEvent)
			for i, e := range list {
				if e.GetSequence() != uint64(i+1) {
					t.Errorf("message %d is %d", i+1, e.GetSequence())
				}
			}
			if len(list) < 7 || len(list) == 40 {
				t.Errorf("%d messages", len(list))
			}
		})
	})
	t.Run("export", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := edgetest.Share()
			all.Pipes = edgetest.NewPipes()
			session := `{"app_id":"app"}`
			n := join(t, all, func(c *edge.Config) {
				c.Catalog = &list{runs: []schema.RunInfo{{ID: "run", Session: json.RawMessage(session)}}}
			})
			n.Say("run", edgetest.Event(schema.TypeSessionCreated, session))
			for range 1000 {
				n.Say("run", edgetest.Event(schema.TypeCommandMessage, `{"content":"x"}`))
			}
			r := n.raw("RuntimeAuditService/ExportAuditEvents", &runtimev1.ExportAuditEventsRequest{})
			stalled(t, r)
			for i, c := range read(t, r, chunk) {
				if c.GetSequence() != uint64(i) || c.GetEof() {
					t.Errorf("chunk %d is %d, eof %v", i, c.GetSequence(), c.GetEof())
				}
			}
		})
	})
}

// TestStopping: when a node goes away, health says STOPPING at once. Streams of the modes A, B and D end with CANCELLED
// at least 100 ms later, over the drain window, with nothing made up. An export is finished.
func TestStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 2 * time.Second
		all := edgetest.Share()
		all.Pipes = edgetest.NewPipes()
		session := `{"app_id":"app"}`
		n := join(t, all, func(c *edge.Config) {
			c.DrainWindow = window
			c.Catalog = &list{runs: []schema.RunInfo{{ID: "run", Session: json.RawMessage(session)}}}
		})
		n.Say("run", edgetest.Event(schema.TypeSessionCreated, session), text("some text"))
		for range 1000 {
			n.Say("run", edgetest.Event(schema.TypeCommandMessage, `{"content":"x"}`))
		}
		open, said := map[string]*edgetest.Raw{}, map[string]int{}
		for method, in := range map[string]proto.Message{
			"RuntimeAiService/StreamScenario":                     ask(),
			"RuntimeAiService/SubscribeScenarioJobEvents":         &runtimev1.SubscribeScenarioJobEventsRequest{JobId: "run"},
			"RuntimeWorkflowService/SubscribeWorkflowEvents":      &runtimev1.SubscribeWorkflowEventsRequest{TaskId: "run"},
			"RuntimeAiRealtimeService/ReadRealtimeEvents":         &runtimev1.ReadRealtimeEventsRequest{SessionId: "run"},
			"RuntimeAgentService/SubscribeAgentEvents":            &runtimev1.SubscribeAgentEventsRequest{AgentId: "run"},
			"RuntimeAccountService/SubscribeAccountSessionEvents": &runtimev1.SubscribeAccountSessionEventsRequest{},
			"RuntimeCognitionService/SubscribeMemoryEvents":       &runtimev1.SubscribeMemoryEventsRequest{},
			"RuntimeAppService/SubscribeAppMessages":              &runtimev1.SubscribeAppMessagesRequest{AppId: "app"},
			"RuntimeLocalService/WatchLocalTransfers":             &runtimev1.WatchLocalTransfersRequest{},
			"RuntimeAuditService/SubscribeAIProviderHealthEvents": &runtimev1.SubscribeAIProviderHealthEventsRequest{},
			"RuntimeAuditService/SubscribeRuntimeHealthEvents":    &runtimev1.SubscribeRuntimeHealthEventsRequest{},
			"RuntimeAuditService/ExportAuditEvents":               &runtimev1.ExportAuditEventsRequest{},
			"/grpc.health.v1.Health/Watch":                        &healthpb.HealthCheckRequest{},
		} {
			open[method] = n.raw(method, in)
		}
		synctest.Wait()
		for method, r := range open {
			said[method] = len(r.Messages())
		}
		begun := time.Now()
		stopped := make(chan struct{})
		go func() { defer close(stopped); n.Stop() }()
		defer func() { <-stopped }()
		synctest.Wait()
		if e := read(t, open["RuntimeAuditService/SubscribeRuntimeHealthEvents"], health); len(e) != 1 ||
			e[0].GetStatus() != runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_STOPPING {
			t.Errorf("health says %v", e)
		}
		if b := open["/grpc.health.v1.Health/Watch"].Messages(); len(b) != 1 || string(b[0]) != "\x08\x02" {
			t.Errorf("the standard health says %q", b)
		}
		export := open["RuntimeAuditService/ExportAuditEvents"]
		delete(open, "RuntimeAuditService/ExportAuditEvents")
		first, last := time.Hour, time.Duration(0)
		var mu sync.Mutex
		var group sync.WaitGroup
		for method, r := range open {
			group.Go(func() {
				end := r.WaitEnd(time.Minute)
				took := time.Since(begun)
				mu.Lock()
				defer mu.Unlock()
				if first, last = min(first, took), max(last, took); !strings.HasPrefix(end, "1 ") || took < 100*time.Millisecond {
					t.Errorf("%s: ended with %q after %v", method, end, took)
				}
				if more := r.Messages(); len(more) > 0 || said[method] == 0 && strings.Contains(method, "Scenario") {
					t.Errorf("%s: %d messages behind the %d", method, len(more), said[method])
				}
			})
		}
		group.Wait()
		if last > window+time.Second || last-first < window/2 {
			t.Errorf("the first ended after %v, the last after %v", first, last)
		}
		time.Sleep(time.Second)
		if err := export.Allow(1 << 30); err != nil {
			t.Error(err)
		}
		if end := export.WaitEnd(time.Minute); end != "0 " {
			t.Errorf("the export ended with %q", end)
		}
		if list := read(t, export, chunk); len(list) == 0 || !list[len(list)-1].GetEof() {
			t.Errorf("%d chunks, without the last", len(list))
		}
	})
}
