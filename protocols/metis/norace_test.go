//go:build !race

package metis

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestWellFormed: whatever a log says, the events are in order: a turn has one route, a tool is called behind the
// request that asks for it, what begins ends.
func TestWellFormed(t *testing.T) {
	t.Parallel()
	for _, s := range all(t) {
		c := newChecker()
		list := events(t, project(t, projector(Filter{Workers: true}, ""), records(t, s)))
		for _, e := range list {
			if wrong := c.see(e); wrong != "" {
				t.Errorf("%s: %s %s: %s in\n%s", s.Name, e.ID, e.Type, wrong, types(list))
				break
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestResume: behind every event, whatever the filter shows of it, the rest is the same byte for byte, from a copy of a
// projector for nobody, and its number is a difference of two states.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, s := range short(t) {
		list := records(t, s)
		everything := project(t, projector(Filter{Workers: true}, ""), list)
		for name, f := range filters() {
			whole := project(t, projector(f, ""), list)
			silent := newProjector(dialect.Request{})
			counts := make([]dialect.Stateful, 0, len(list)+1)
			for _, r := range list {
				counts = append(counts, silent.For(dialect.Request{}))
				if err := silent.Project(nil, r); err != nil {
					t.Fatal(err)
				}
			}
			req := EventsRequest(schematest.Root, f)
			end := silent.For(req).(*Projector).Count()
			if end != int64(len(whole)) {
				t.Fatalf("%s, %s: %d events are counted, %d shown", s.Name, name, end, len(whole))
			}
			for _, at := range everything {
				place, ok := placeOf(at.id)
				if !ok || place.Seq != at.seq || place.Slot != at.slot {
					t.Fatalf("%s: %s is not %d.%d", s.Name, at.id, at.seq, at.slot)
				}
				i, _ := slices.BinarySearchFunc(whole, at.id, func(w told, id string) int { return strings.Compare(w.id, id) })
				if i < len(whole) && whole[i].id == at.id {
					i++
				}
				n, err := counts[at.seq-1].For(req).(*Projector).CountThrough(list[at.seq-1], at.slot)
				if err != nil || end-n != int64(len(whole)-i) {
					t.Fatalf("%s, %s: %d events are counted behind %s, there are %d: %v", s.Name, name, end-n, at.id,
						len(whole)-i, err)
				}
				if at.seq%17 != 0 {
					continue
				}
				rest := project(t, counts[at.seq-1].For(req).(*Projector), list[at.seq-1:])
				for len(rest) > 0 && rest[0].id <= at.id {
					rest = rest[1:]
				}
				if !slices.EqualFunc(rest, whole[i:], func(x, y told) bool { return bytes.Equal(x.data, y.data) }) {
					t.Fatalf("%s, %s: another rest behind %s", s.Name, name, at.id)
				}
			}
		}
	}
}

// TestSelection: a filter is a choice among the events of all.
func TestSelection(t *testing.T) {
	t.Parallel()
	for _, s := range all(t) {
		list := records(t, s)
		full := project(t, projector(Filter{Workers: true}, ""), list)
		for name, f := range filters() {
			var want []told
			for i, e := range events(t, full) {
				if (f.Types == nil || slices.Contains(f.Types, e.Type)) &&
					(f.Actors == nil || slices.Contains(f.Actors, e.Actor)) && (f.Workers || e.Session == schematest.Root) {
					want = append(want, full[i])
				}
			}
			if got := project(t, projector(f, ""), list); !slices.EqualFunc(got, want,
				func(x, y told) bool { return bytes.Equal(x.data, y.data) }) {
				t.Fatalf("%s, %s: %d events, %d chosen", s.Name, name, len(got), len(want))
			}
		}
		children := map[string][]told{}
		for i, e := range events(t, full) {
			children[e.Session] = append(children[e.Session], full[i])
		}
		for _, child := range slices.Sorted(maps.Keys(children)) {
			if child == schematest.Root {
				continue
			}
			p := projector(Filter{}, child)
			got := project(t, p, list)
			if !slices.EqualFunc(got, children[child], func(x, y told) bool { return bytes.Equal(x.data, y.data) }) ||
				p.Count() != int64(len(got)) {
				t.Fatalf("%s: attached to %s: %d events, %d counted, %d with the run", s.Name, child, len(got),
					p.Count(), len(children[child]))
			}
		}
	}
}

// TestCopiesShareWhatIsOpen: what goes on after a copy was made copies the calls that change, not all that are open.
func TestCopiesShareWhatIsOpen(t *testing.T) {
	const open, most = 10_000, 1_000
	p, list := newProjector(dialect.Request{}), records(t, schematest.Scenario{Events: manyCalls(open + 20)})
	for _, r := range list[:len(list)-20] {
		if err := p.Project(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	next := list[len(list)-20:]
	if n := testing.AllocsPerRun(5, func() {
		_ = p.For(dialect.Request{})
		if err := p.Project(nil, next[0]); err != nil {
			t.Fatal(err)
		}
		next = next[1:]
	}); n > most {
		t.Errorf("a record after a copy makes %v things with %d open calls, %d at most", n, open, most)
	}
}

// manyCalls returns the beginnings of calls that do not end.
func manyCalls(n int) (all []schema.Event) {
	for i := range n {
		all = append(all, schema.Event{Type: schema.TypeToolStart,
			Payload: fmt.Appendf(nil, `{"call_id":"c%d","tool":"t"}`, i)})
	}
	return all
}
