package sessions_test

import (
	"fmt"
	"testing"

	"agentstream/schema/schematest"
)

// BenchmarkHistory reads pages of a session of 100,000 records, at its beginning, in its middle and from its end.
func BenchmarkHistory(b *testing.B) {
	h := newHouse(b, false)
	h.fill("run", schematest.Generate(100_000, 3), 100)
	all := h.frames("run", "")
	for _, c := range []struct{ name, query string }{
		{"first", "?limit=100"},
		{"middle", "?limit=100&after_id=" + all[len(all)/2].id},
		{"newest", "?limit=100&order=desc"},
		{"newest1000", "?limit=1000&order=desc"},
		{"messages", "?limit=100&types=agent.message"},
		{"nothing", "?types=no.such"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if a := h.do("GET", eventsPath("run", "")+c.query, ""); a.status != 200 {
					b.Fatal(a.status, a.body)
				}
			}
		})
	}
}

// BenchmarkSend sends messages to one session, one after another.
func BenchmarkSend(b *testing.B) {
	h := newHouse(b, false)
	id := h.create(plainBody)
	for i := 0; b.Loop(); i++ {
		if a := h.do("POST", eventsPath(id, ""), hello, "Idempotency-Key", fmt.Sprint(i)); a.status != 200 {
			b.Fatal(a.status, a.body)
		}
	}
}
