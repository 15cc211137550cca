package langgraph

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema/schematest"
)

// BenchmarkProject translates a long run, for a client and for nobody.
func BenchmarkProject(b *testing.B) {
	list := records(b, schematest.ByName("long"))
	for name, out := range map[string]*dialect.Frames{"frames": {}, "silent": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				p := projector(b, everything)
				for _, r := range list {
					if out != nil {
						out.Reset()
					}
					if err := p.Project(out, r); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/record")
		})
	}
}
