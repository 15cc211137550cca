//go:build !race

package qoder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentstream/edge/dialect"
	"agentstream/schema/schematest"
)

// TestAnyLog: whatever a log says, frames are JSON, each has an id of its own, and an id is one content in all
// forms.
func TestAnyLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := drawLog(rt, t, true)
		increments := rapid.Bool().Draw(rt, "increments")
		contents := map[string]string{}
		for _, f := range forms() {
			ids := map[string]bool{}
			for _, fr := range projected(t, increments, f, list) {
				if ids[fr.id] {
					rt.Fatalf("%+v: id %s comes twice, the second is %s", f, fr.id, fr.data)
				}
				ids[fr.id] = true
				if before, ok := contents[fr.id]; ok && before != fr.event+fr.data {
					rt.Fatalf("id %s is\n%s, and\n%s", fr.id, before, fr.data)
				}
				contents[fr.id] = fr.event + fr.data
			}
		}
	})
}

// TestCopies: a copy that is made anywhere goes on like the original, and neither disturbs the other; and so does
// one that was fed in silence.
func TestCopies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := drawLog(rt, t, true)
		req := dialect.Request{Run: testRun, Form: rapid.SampledFrom(forms()).Draw(rt, "form").key()}
		at := rapid.IntRange(0, len(list)).Draw(rt, "at")
		d := Dialect{Increments: rapid.Bool().Draw(rt, "increments")}
		whole := d.Projector(req)
		feed(t, whole, list[:at])
		want := feed(t, whole, list[at:])

		quiet := d.Projector(dialect.Request{}).(dialect.Stateful)
		for _, r := range list[:at] {
			if err := quiet.Project(nil, r); err != nil {
				rt.Fatal(err)
			}
		}
		copied := quiet.For(req)
		other := quiet.For(dialect.Request{})
		feed(t, other, list[at:])          // what one does with its memory
		feed(t, other, list[:len(list)/2]) // is nothing to
		if got := feed(t, copied, list[at:]); !slices.Equal(got, want) {
			rt.Fatalf("a copy at %d\n%s\nthe whole\n%s", at, brief(got), brief(want))
		}
		if got := feed(t, quiet.For(req), list[at:]); !slices.Equal(got, want) {
			rt.Fatalf("another copy at %d\n%s\nthe whole\n%s", at, brief(got), brief(want))
		}
	})
}

// TestFlag: without increments the frames are the same, with the same ids, but for the increments themselves, and
// for what agent.message holds beside text.
func TestFlag(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := drawLog(rt, t, false)
		f := rapid.SampledFrom(forms()).Draw(rt, "form")
		keep := func(frames []shown) (out []shown, messages map[string]string) {
			messages = map[string]string{}
			for _, f := range frames {
				switch {
				case strings.HasPrefix(f.event, "agent.message_"), strings.HasPrefix(f.event, "agent.content_block"):
				case f.event == "agent.message":
					messages[f.id] = f.data
				default:
					out = append(out, f)
				}
			}
			return out, messages
		}
		on, full := keep(projected(t, true, f, list))
		off, plain := keep(projected(t, false, f, list))
		if !slices.Equal(on, off) {
			rt.Fatalf("on\n%s\noff\n%s", brief(on), brief(off))
		}
		for id, data := range plain {
			if full[id] == "" {
				rt.Fatalf("%s is only there without increments", data)
			}
		}
		for id, data := range full {
			if plain[id] == "" && strings.Contains(data, `"content":[{"type":"text","text":"a`) {
				rt.Fatalf("%s is only there with increments", data)
			}
		}
	})
}

// TestIncrementsMakeSense: blocks begin in order and stop once, with all their pieces before that, messages stop
// before they are told whole, and the pieces of a text are never less than the beginning of it.
func TestIncrementsMakeSense(t *testing.T) {
	compared := 0
	rapid.Check(t, func(rt *rapid.T) {
		list := drawLog(rt, t, true)
		for _, child := range lanes {
			r := newStructure()
			for _, f := range projected(t, true, form{thread: ThreadID(testRun, child)}, list) {
				if complaint := r.read(f); complaint != "" {
					rt.Fatalf("%s: %s", complaint, f.data)
				}
			}
			if len(r.open) > 0 {
				rt.Fatalf("%d messages never end", len(r.open))
			}
			compared += r.compared
		}
	})
	if least := map[bool]int{false: 100, true: 10}[testing.Short()]; compared < least { // -short draws a fifth of the logs
		t.Errorf("only %d texts were compared", compared)
	}
}

// What is open is bounded, whatever comes.
func TestToolsBounded(t *testing.T) {
	var log strings.Builder
	for i := range maxCalls + 300 {
		more := ""
		if i < maxWaiting+10 {
			more = `,"custom":true`
		}
		fmt.Fprintf(&log, "tool.start {\"call_id\":\"%d%s\",\"tool\":\"t\"%s}\n", i, strings.Repeat("x", 2000), more)
	}
	p := Dialect{}.Projector(Request(testRun, "")).(*Projector)
	feed(t, p, records(t, scenario(log.String())))
	if n, w := p.tools.open.Len(), p.tools.waiting.Len(); n != maxCalls || w != maxWaiting {
		t.Errorf("%d are open, %d wait", n, w)
	}
	for _, c := range p.tools.waiting.All() {
		if p.tools.call(c.key) == nil {
			t.Fatal("what waits was forgotten")
		}
	}
	if size := p.Size(); size < maxCalls*100 || size > maxCalls*1000 {
		t.Errorf("size %d", size)
	}
}

// The scenarios hold as well, in every form.
func TestScenariosHold(t *testing.T) {
	for _, s := range schematest.All() {
		list := records(t, s)
		for _, child := range []string{"", schematest.ChildA, schematest.Grandchild} {
			thread := ThreadID(testRun, child)
			if child == "" {
				thread = ""
			}
			if complaint := holds(projected(t, true, form{thread: thread}, list)); complaint != "" {
				t.Errorf("%s: %s", s.Name, complaint)
			}
		}
	}
}
