package aisdk

import (
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/schema/schematest"
)

// TestGolden has the chunks of each response of every scenario, as a body has them.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			records := schematest.RecordsOf(t, "run_a", s)
			var b strings.Builder
			for _, first := range responsesOf(t, records) {
				b.WriteString("# " + messageID("run_a", first) + "\n")
				for _, f := range framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: "99"}, records) {
					b.WriteString(f + "\n")
				}
			}
			dialecttest.Golden(t, *update, s.Name+".txt", []byte(b.String()))
		})
	}
}

// TestChunksAreTaken holds the bodies of all scenarios, and of runs that are drawn, to what a client takes.
func TestChunksAreTaken(t *testing.T) {
	all := schematest.All()
	for seed := range uint64(40) {
		s := schematest.Generate(400, seed)
		s.Name = "drawn"
		all = append(all, s)
	}
	for _, s := range all {
		records := schematest.RecordsOf(t, "run_a", s)
		for _, first := range responsesOf(t, records) {
			for _, form := range []string{"", "1", "99"} {
				v := newRules()
				list := framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: form}, records)
				for i, f := range list {
					if err := v.check(f); err != nil {
						t.Fatalf("%s: response %d, chunk %d: %v: %s\n%s", s.Name, first, i, err, f,
							strings.Join(list[max(0, i-12):i], "\n"))
					}
				}
			}
		}
	}
}
