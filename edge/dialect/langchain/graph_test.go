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
	list := graphRecords(t, in)
	frames := project(t, projector(t, everything), list)
	for _, problem := range langchaintest.Differences(want, sent(t, frames)) {
		t.Error(problem)
	}
	whole, seen := projector(t, everything), 0
	for i := range list { // a copy made at any record goes on in the same way
		rest := project(t, whole.For(requested(t, everything)).(*Projector), list[i:])
		if len(rest) != len(frames)-seen || len(rest) > 0 && !bytes.Equal(rest[0].Data, frames[seen].Data) {
			t.Fatalf("behind record %d there are %d frames, want %d", i, len(rest), len(frames)-seen)
		}
		seen += len(project(t, whole, list[i:i+1]))
	}
	for _, f := range frames {
		if err := langchaintest.Valid(f.Data); err != nil {
			t.Errorf("%s: %v", f.Data, err)
		}
	}
}
