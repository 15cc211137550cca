package metis

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema/assemble"
	"agentstream/schema/schematest"
)

// BenchmarkProject feeds a run of many deltas: silently, with frames, and to the reading alone.
func BenchmarkProject(b *testing.B) {
	list := records(b, schematest.ByName("long"))
	perRecord := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/record")
	}
	b.Run("reading", func(b *testing.B) {
		for b.Loop() {
			a := assemble.New(limits)
			for _, r := range list {
				if _, err := a.Next(r); err != nil {
					b.Fatal(err)
				}
			}
		}
		perRecord(b)
	})
	for name, out := range map[string]*dialect.Frames{"silent": nil, "frames": {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := projector(Filter{}, "")
				for _, r := range list {
					if err := p.Project(out, r); err != nil {
						b.Fatal(err)
					}
					if out != nil {
						out.Reset()
					}
				}
			}
			perRecord(b)
		})
	}
}
