package nimi

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// record makes one of a run.
func record(t testing.TB, seq schema.Seq, typ, payload string) schema.Record {
	t.Helper()
	e := schema.Event{Type: typ, Payload: []byte(payload)}
	if err := e.Prepare("run"); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf(`{"id":"evt_1","ts":"2026-11-25T10:00:00.5Z","type":%q,"run_id":"run","child_id":null,"seq":%d,"payload":%s}`, typ, seq, payload)
	r, err := schema.ScanLine([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDeltaIsTheMessage decodes what is encoded by hand.
func TestDeltaIsTheMessage(t *testing.T) {
	p, out := &scenario{encoder: encoder{run: "run"}}, &dialect.Frames{}
	for i, r := range []schema.Record{
		record(t, 1, schema.TypeSessionCreated, `{"model":"demo","runtime":{"as":"stream","route":"cloud"}}`),
		record(t, 2, schema.TypeTextDelta, `{"text":"a \"quoted\" piece of text, \u00e9 and more of it"}`),
		record(t, 3, schema.TypeRunLifecycle, `{"state":"error","reason":"AI_PROVIDER_TIMEOUT: slow"}`),
	} {
		out.Reset()
		if err := p.Project(out, r); err != nil || len(out.List) != 1 {
			t.Fatalf("%d frames, %v", len(out.List), err)
		}
		var m runtimev1.StreamScenarioEvent
		if err := proto.Unmarshal(out.List[0].Data, &m); err != nil || len(m.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("%v, %v", &m, err)
		}
		if m.GetSequence() != uint64(i+1) || m.GetTimestamp().GetSeconds() != 1795600800 ||
			m.GetTimestamp().GetNanos() != 5e8 || m.GetTraceId() != "run" {
			t.Errorf("%v", &m)
		}
		switch i {
		case 0:
			if s := m.GetStarted(); s.GetModelResolved() != "demo" ||
				s.GetRouteDecision() != runtimev1.RoutePolicy_ROUTE_POLICY_CLOUD {
				t.Errorf("%v", &m)
			}
		case 1:
			if m.GetDelta().GetText().GetText() != `a "quoted" piece of text, é and more of it` {
				t.Errorf("%v", &m)
			}
		case 2:
			if m.GetFailed().GetReasonCode() != runtimev1.ReasonCode_AI_PROVIDER_TIMEOUT || !out.List[0].Last {
				t.Errorf("%v", &m)
			}
		}
	}
}

// TestNothingIsAllocated for a delta, once the projector has its buffers.
func TestNothingIsAllocated(t *testing.T) {
	p, out := &scenario{encoder: encoder{run: "run"}, sequence: 1}, &dialect.Frames{}
	r := record(t, 2, schema.TypeTextDelta, `{"text":"`+strings.Repeat("x", 100)+`"}`)
	if n := testing.AllocsPerRun(1000, func() {
		out.Reset()
		if err := p.Project(out, r); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkDelta projects deltas of 100 bytes. BenchmarkProject of package native does the same for agent.v1.Event.
func BenchmarkDelta(b *testing.B) {
	p, out := &scenario{encoder: encoder{run: "run"}, sequence: 1}, &dialect.Frames{}
	r := record(b, 2, schema.TypeTextDelta, `{"text":"`+strings.Repeat("x", 100)+`"}`)
	b.ReportAllocs()
	b.SetBytes(100)
	for b.Loop() {
		out.Reset()
		if err := p.Project(out, r); err != nil {
			b.Fatal(err)
		}
	}
}
