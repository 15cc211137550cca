package metis

import (
	"bytes"
	"testing"

	"agentstream/schema/schematest"
)

// TestGolden: the frames of each scenario, with the sessions of workers, the messages, and the snapshot at the end.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		if s.Name == "long" {
			s.Events = s.Events[:120]
		}
		list := records(t, s)
		var b bytes.Buffer
		p := projector(Filter{Workers: true}, "")
		for _, f := range project(t, p, list) {
			b.Write(append(f.data, '\n'))
		}
		for _, f := range project(t, newProjector(MessagesRequest(schematest.Root)), list) {
			b.Write(append(f.data, '\n'))
		}
		snap, err := p.AppendSnapshot(nil, walk(list))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(snap, '\n'))
		golden(t, s.Name+".jsonl", b.Bytes())
	}
}
