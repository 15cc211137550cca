package langchain

import (
	"bytes"
	"os"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/langchain/langchaintest"
	"agentstream/producers/langgraph"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// graphRecords returns what producers/langgraph makes of lines, as it is stored.
func graphRecords(t testing.TB, lines []byte) (all []schema.Record) {
	t.Helper()
	n := schema.Seq(0)
	for e, err := range langgraph.Decode(bytes.NewReader(lines), langgraph.Config{RunID: schematest.Root, Lifecycle: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		e.Seq, e.ID, e.RunID = n, schematest.EventID(n), schematest.Root
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			t.Fatalf("%s: %v", e.Payload, err)
		}
		all = append(all, r)
	}
	return all
}

func sent(t testing.TB, frames []dialect.Frame) []langchaintest.Sent {
	t.Helper()
	var b bytes.Buffer
	for _, f := range frames {
		b.Write(append(f.Data, '\n'))
	}
	all, err := langchaintest.ReadSent(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGraph: what a graph of @langchain/langgraph has sent, with subgraphs, parallel nodes, tools, an interrupt and its answer,
// comes out as it went in. internal/e2e does the same with graphs that run.
func TestGraph(t *testing.T) {
	in, err := os.ReadFile("testdata/graph-in.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := langchaintest.ReadSent(in)
	if err != nil {
		t.Fatal(err)
	}
	frames := project(t, projector(t, everything), graphRecords(t, in))
	for _, problem := range langchaintest.Differences(want, sent(t, frames)) {
		t.Error(problem)
	}
	for _, f := range frames {
		if err := langchaintest.Valid(f.Data); err != nil {
			t.Errorf("%s: %v", f.Data, err)
		}
	}
}
