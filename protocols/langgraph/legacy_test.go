package langgraph

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema/schematest"
)

// everyMode are the modes of the older API.
var everyMode = []string{"values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "tools"}

func legacyProjector(tb testing.TB, q Legacy) *Projector {
	tb.Helper()
	q.Thread = schematest.Root
	req, err := q.Request()
	if err != nil {
		tb.Fatal(err)
	}
	return Dialect{}.Projector(req).(*Projector)
}

func lines(frames []dialect.Frame) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		fmt.Fprintf(&b, "%s %s %s %v\n", f.Token, f.Event, f.Data, f.Last)
	}
	return b.Bytes()
}

// TestLegacyGolden: what the older API says of a thread with all channels.
func TestLegacyGolden(t *testing.T) {
	list := records(t, log(allChannels))
	golden(t, "legacy.txt", lines(project(t, legacyProjector(t, Legacy{Modes: everyMode, Subgraphs: true}), list)))
}

// TestLegacyRuns: a stream of a run has exactly the run's part of the thread's, and ends with the run.
func TestLegacyRuns(t *testing.T) {
	list := records(t, log(allChannels))
	p := legacyProjector(t, Legacy{Modes: everyMode})
	all := project(t, p, list)
	runs := p.Runs()
	if len(runs) != 3 || runs[0].Status != "interrupted" || runs[1].Status != "success" ||
		runs[2].Status != "interrupted" {
		t.Fatalf("%+v", runs)
	}
	var parts []dialect.Frame
	for _, run := range runs {
		whole := legacyProjector(t, Legacy{Modes: everyMode, Run: run.ID})
		part := project(t, whole, list)
		if span := whole.Span(whole.req); span.First != run.First || span.Last != run.Last || run.Last == 0 {
			t.Errorf("%+v: %+v", run, span)
		}
		if last := part[len(part)-1]; !last.Last || string(last.Event) != "end" {
			t.Errorf("the last is %s %s", last.Event, last.Data)
		}
		for i := range part {
			part[i].Last = false
		}
		parts = append(parts, part...)
	}
	if got, want := lines(parts), lines(all); !bytes.Equal(got, want) {
		t.Errorf("the runs have\n%s\nthe thread\n%s", got, want)
	}
}

// TestLegacyRefusals: a mode that there is not, and cursors of others.
func TestLegacyRefusals(t *testing.T) {
	for _, modes := range [][]string{{"messages"}, {"values", "debug"}, {"events"}, {""}} {
		if _, err := (Legacy{Thread: "t", Modes: modes}).Request(); !errors.Is(err, dialect.ErrUnprocessable) {
			t.Errorf("%q: %v", modes, err)
		}
	}
	for _, q := range []Legacy{{Thread: "t", LastEventID: "7"},
		{Thread: "t", LastEventID: EventID("u", dialect.Place{Seq: 3})}, {Thread: "a b"}} {
		if _, err := q.Request(); err == nil {
			t.Errorf("%+v is taken", q)
		}
	}
}

// TestLegacyDropped: a run that was waiting when all was cancelled ends without having begun.
func TestLegacyDropped(t *testing.T) {
	list := records(t, log(`
		command.message {"content":"a"}
		turn.start {"turn_id":"t1"}
		command.message {"content":"b","multitask_strategy":"enqueue"}
		command.cancel {}
		turn.end {"turn_id":"t1","stop_reason":"cancelled"}
		commands.taken {"through":4}
	`))
	frames := project(t, legacyProjector(t, Legacy{Run: RunID(schematest.Root, 3)}), list)
	if len(frames) != 1 || !frames[0].Last || !strings.Contains(string(frames[0].Data), `"status":"interrupted"`) {
		t.Errorf("%s", lines(frames))
	}
}
