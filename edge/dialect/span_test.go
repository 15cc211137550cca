package dialect

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"agentstream/schema"
)

// TestSpans has copies of spans go on by themselves: each knows what was done to it, and to what it was copied from
// before.
func TestSpans(t *testing.T) {
	type copied struct {
		spans Spans
		model []Span
	}
	rapid.Check(t, func(t *rapid.T) {
		all := []*copied{{}}
		for seq := schema.Seq(1); seq < 60; seq++ {
			c := rapid.SampledFrom(all).Draw(t, "copy")
			id := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))
			newest := -1
			for i, s := range c.model {
				if s.ID == id {
					newest = i
				}
			}
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				if newest >= 0 && c.model[newest].Last == 0 {
					continue // it goes on
				}
				n := c.spans.Begin(id, seq)
				if c.model = append(c.model, Span{ID: id, Number: n, First: seq}); n != len(c.model) {
					t.Fatalf("number %d of %d", n, len(c.model))
				}
			case 1:
				c.spans.End(id, seq)
				if newest >= 0 && c.model[newest].Last == 0 {
					c.model[newest].Last = seq
				}
			case 2:
				all = append(all, &copied{c.spans.Clone(), append([]Span(nil), c.model...)})
			}
			for i, c := range all {
				for id := range 6 {
					want := Span{}
					for _, s := range c.model {
						if s.ID == fmt.Sprint(id) {
							want = s
						}
					}
					if got := c.spans.Find(fmt.Sprint(id)); got != want {
						t.Fatalf("copy %d at %d has %+v of %d, want %+v", i, seq, got, id, want)
					}
				}
				newest := Span{}
				for _, s := range c.model {
					if s.First > newest.First {
						newest = s
					}
				}
				if got := c.spans.Find(SpanNewest); got != newest {
					t.Fatalf("copy %d at %d has %+v as the newest, want %+v", i, seq, got, newest)
				}
				if got := c.spans.Size(); got < len(c.model)*spanSize {
					t.Fatalf("%d spans in %d bytes", len(c.model), got)
				}
			}
		}
	})
}
