package publish

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// graphLine is a protocol event of a LangGraph agent, written for this test.
func graphLine(method, data string) string {
	return `{"type":"event","seq":0,"method":"` + method +
		`","params":{"namespace":[],"timestamp":1700000000000,"data":` + data + `}}` + "\n"
}

func graphRun(middle string) string {
	return graphLine("lifecycle", `{"event":"running","graph_name":"root"}`) + middle + graphLine("values", `{"n":1}`) +
		graphLine("lifecycle", `{"event":"completed","graph_name":"root"}`)
}

func typesOf(t *testing.T, lines []string) (types []string) {
	t.Helper()
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	return types
}

// The events of a graph are known by their content. They say themselves how the run goes, unless that is left to
// others.
func TestPublishGraph(t *testing.T) {
	for _, noLifecycle := range []bool{false, true} {
		s := clitest.NewStandIn(t)
		_, stderr, err := publish(t, s, PublishCmd{RunID: "thread_1", NoLifecycle: noLifecycle,
			Streams: cli.Streams{In: strings.NewReader(graphRun(""))}})
		if err != nil || !strings.Contains(stderr, "langgraph, JSON lines") {
			t.Fatalf("%v\n%s", err, stderr)
		}
		want := []string{schema.TypeRunLifecycle, schema.TypeStateValues, schema.TypeRunLifecycle}
		if noLifecycle {
			want = want[1:2]
		}
		if got := typesOf(t, s.Lines("thread_1")); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
	if _, _, err := publish(t, clitest.NewStandIn(t),
		PublishCmd{RunID: "thread_1", Child: "c1",
			Streams: cli.Streams{In: strings.NewReader(graphRun(""))}}); err == nil ||
		!strings.Contains(err.Error(), "--child") {
		t.Error(err)
	}
}

// A line that cannot be read is named with its number; all others are stored, and the log says that it is missing.
func TestPublishGraphWithBadLines(t *testing.T) {
	s := clitest.NewStandIn(t)
	file := clitest.WriteFile(t, "events", graphRun("{\"method\":\n"+graphLine("custom", `{"name":"n"}`)+"7\n"))
	_, stderr, err := publish(t, s, PublishCmd{RunID: "thread_1", Format: "langgraph", Files: []string{file}})
	if err == nil || !strings.Contains(err.Error(), file+":2: KAI-STREAM-PROTO-0001") ||
		!strings.Contains(err.Error(), "invalid JSON") || !strings.Contains(stderr, file+":4: ") {
		t.Errorf("%v\n%s", err, stderr)
	}
	want := []string{schema.TypeRunLifecycle, schema.TypeLoss, "custom.n", schema.TypeLoss, schema.TypeStateValues,
		schema.TypeRunLifecycle}
	if got := typesOf(t, s.Lines("thread_1")); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Standard input is followed: an event is stored while the agent goes on.
func TestPublishGraphAsItComes(t *testing.T) {
	s := clitest.NewStandIn(t)
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, _, err := publish(t, s, PublishCmd{RunID: "thread_1", Streams: cli.Streams{In: r}})
		done <- err
	}()
	for i, line := range strings.SplitAfter(graphRun(""), "\n")[:3] {
		if _, err := io.WriteString(w, line); err != nil {
			t.Fatal(err)
		}
		for len(s.Lines("thread_1")) <= i {
			select {
			case err := <-done:
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
		}
	}
	_ = w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
