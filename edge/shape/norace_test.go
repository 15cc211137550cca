//go:build !race

package shape

import (
	"slices"
	"testing"

	"agentstream/schema/schematest"
)

// TestFoldingSaysTheSame holds, for every scenario, that a folded replay has no hole, says the same
// and is shorter where there is something to fold.
func TestFoldingSaysTheSame(t *testing.T) {
	for _, s := range append(schematest.All(), schematest.Generate(3000, 1), schematest.Generate(3000, 2)) {
		rs := records(t, s)
		for _, bundled := range []bool{false, true} {
			outs := fold(Folder{Merge: true, Bundle: bundled}, rs)
			checkTiles(t, outs, 0)
			if outs[len(outs)-1].Seq != rs[len(rs)-1].Seq {
				t.Fatalf("%s ends at %d", s.Name, outs[len(outs)-1].Seq)
			}
			if !bundled {
				checkSame(t, unfold(t, outs), rs)
			} else {
				g, w := texts(t, unfold(t, outs)), texts(t, events(t, rs))
				for k := range w {
					if g[k] != w[k] {
						t.Fatalf("%s bundled: %s: %q, want %q", s.Name, k, g[k], w[k])
					}
				}
			}
			t.Logf("%s bundle=%v: %d events, %d shown", s.Name, bundled, len(rs), len(outs))
		}
	}
}

// TestResumeOfAFoldedView holds that a client which has a folded view up to any of its events, and
// asks for the rest, gets exactly the rest.
func TestResumeOfAFoldedView(t *testing.T) {
	rs := records(t, schematest.Generate(800, 7))
	whole := fold(Folder{Merge: true, Bundle: true}, rs)
	for i, o := range whole {
		rest := fold(Folder{Merge: true, Bundle: true, Last: o.Seq}, rs[o.Seq:])
		checkTiles(t, rest, o.Seq)
		g := texts(t, unfold(t, append(slices.Clone(whole[:i+1]), rest...)))
		for k, w := range texts(t, events(t, rs)) {
			if g[k] != w {
				t.Fatalf("resumed after %d: %s: %q, want %q", o.Seq, k, g[k], w)
			}
		}
	}
}
