package nimi

import (
	"flag"
	"testing"

	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema/schematest"
)

var damaged = flag.Uint64("damaged", 500, "how many damaged logs are read")

// TestDamagedLogs: of logs in which any control event is doubled, missing or late, no node begins or ends twice, no
// answer is completed twice, and no usage is counted twice.
func TestDamagedLogs(t *testing.T) {
	schematest.CheckDamaged(t, *damaged, shownOf)
}

func shownOf(t *testing.T, s schematest.Scenario) schematest.Shown {
	shown := schematest.Shown{}
	for _, stream := range []string{StreamWorkflow, StreamJob, StreamRealtime} {
		req := dialect.Request{Stream: stream, Run: schematest.Root}
		j := (&Job{}).For(req).(*Job)
		for _, r := range schematest.Records(t, s) {
			var out dialect.Frames
			if err := j.Project(&out, r); err != nil {
				t.Fatal(err)
			}
			for _, f := range out.List {
				show(t, shown, stream, f.Data)
			}
		}
		if u := j.heard.usage().String(); stream == StreamJob {
			shown["all usage "+u]++
		}
	}
	return shown
}

func show(t *testing.T, shown schematest.Shown, stream string, data []byte) {
	var err error
	switch stream {
	case StreamWorkflow:
		var m runtimev1.WorkflowEvent
		err = proto.Unmarshal(data, &m)
		if m.GetNodeId() == "" {
			shown["all "+m.GetEventType().String()]++
			break
		}
		shown[m.GetEventType().String()+" "+m.GetNodeId()]++
	case StreamJob:
		var m runtimev1.ScenarioJobEvent
		err = proto.Unmarshal(data, &m)
		shown["all "+m.GetEventType().String()]++
	case StreamRealtime:
		var m runtimev1.RealtimeEvent
		err = proto.Unmarshal(data, &m)
		shown["all "+m.GetEventType().String()]++
	}
	if err != nil {
		t.Fatal(err)
	}
}
