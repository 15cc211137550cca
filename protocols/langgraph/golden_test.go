package langgraph

import (
	"bytes"
	"testing"

	"agentstream/schema/schematest"
)

// TestGolden: all frames of each scenario, and the thread's state at its end.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		if s.Name == "long" {
			s.Events = s.Events[:120]
		}
		list := records(t, s)
		p := projector(t, everything)
		var b bytes.Buffer
		frames := project(t, p, list)
		events(t, frames)
		for _, f := range frames {
			b.Write(append(f.Data, '\n'))
		}
		state, err := p.AppendState(nil, walk(list))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(state, '\n'))
		golden(t, s.Name+".jsonl", b.Bytes())
	}
}
