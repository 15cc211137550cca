package producers_test

import (
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestReadOpen: the log says of every moment what the agent itself knows of it, and an agent that begins
// again can close it and go on.
func TestReadOpen(t *testing.T) {
	for _, m := range readMoments(t) {
		t.Run(m.Name, func(t *testing.T) {
			ctx, log, key := t.Context(), memory.New(), schema.RunKey{Tenant: "t", Run: "run_1"}
			first, err := producers.New(producers.Config{Log: log, Key: key})
			must(t, err)
			s := newStage(t)
			s.play(m)
			must(t, first.Send(ctx, s.sink.events...), first.Flush(ctx))

			o, last, err := producers.ReadOpen(ctx, log, key)
			must(t, err)
			var own producers.Open
			for i := range s.sink.events {
				own.See(&s.sink.events[i])
			}
			c := producers.Closing{Failed: true, Reason: "gone"}
			if got, want := (&told{events: o.Close(c)}).story(), (&told{events: own.Close(c)}).story(); got != want ||
				int(last) != len(s.sink.events) {
				t.Errorf("at %d of %d the log says\n%swant\n%s", last, len(s.sink.events), got, want)
			}

			second, err := producers.New(producers.Config{Log: log, Key: key})
			must(t, err)
			run, err := producers.NewRun(producers.RunConfig{Sink: second, RunID: key.Run, Open: o})
			must(t, err)
			must(t, run.Recover(ctx, "began again"))
			turn, err := run.Turn(ctx)
			must(t, err)
			must(t, turn.End("end_turn"), run.Finish(ctx), second.Close(ctx))
			after, _, err := producers.ReadOpen(ctx, log, key)
			must(t, err)
			if after.Any("") || after.State("") != schema.StateDone {
				t.Errorf("state %s, open %v", after.State(""), after.Any(""))
			}
			must(t, first.Close(ctx))
		})
	}
}
