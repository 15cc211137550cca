package qoder

import (
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// deltas returns a projector within a block of text, and a delta of it as agents with turns write it.
func deltas(tb testing.TB, increments bool, f form) (*Projector, schema.Record) {
	s := scenario(`
		message.start {"message_id":"msg_01JQ8Z6","role":"assistant","model":"m"}
		block.start {"index":0,"kind":"text","message_id":"msg_01JQ8Z6"}
		text.delta {"text":" about twenty bytes","index":0}`)
	for i := range s.Events {
		s.Events[i].TurnID, s.Events[i].Actor = "turn_01JQ8Z6", "agent"
	}
	list := records(tb, s)
	p := Dialect{Increments: increments}.Projector(dialect.Request{Run: testRun, Form: f.key()}).(*Projector)
	feed(tb, p, list)
	return p, list[2]
}

func BenchmarkDelta(b *testing.B) {
	bench := func(name string, increments bool, f form, silent bool) {
		b.Run(name, func(b *testing.B) {
			p, r := deltas(b, increments, f)
			out := &dialect.Frames{}
			b.ReportAllocs()
			for b.Loop() {
				if silent {
					_ = p.Project(nil, r)
					continue
				}
				_ = p.Project(out, r)
				out.Reset()
			}
		})
	}
	bench("shown", true, form{}, false)
	bench("previewed", true, form{previews: previewMessage}, false)
	bench("off", false, form{}, false)
	bench("silent", true, form{silent: true}, true)
}

// TestDeltaCosts holds the hot path to what it may allocate.
func TestDeltaCosts(t *testing.T) {
	p, r := deltas(t, true, form{})
	var out dialect.Frames
	shown := testing.AllocsPerRun(1000, func() {
		_ = p.Project(&out, r)
		out.Reset()
	})
	silent := testing.AllocsPerRun(1000, func() { _ = p.Project(nil, r) })
	if shown > 3 || silent > 1 {
		t.Errorf("%v allocations for a delta that is shown, %v for one that is not", shown, silent)
	}
}

func BenchmarkClone(b *testing.B) {
	p, r := deltas(b, true, form{})
	for range 10_000 {
		_ = p.Project(nil, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.For(dialect.Request{Run: testRun, Form: form{}.key()})
	}
}
