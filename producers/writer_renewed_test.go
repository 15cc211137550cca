package producers_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// renewing is a log that stores a pack without an answer, or loses it, and is another one when it is asked again.
type renewing struct {
	*memory.Log
	store bool // the pack that is not answered is stored
	at    int  // the append that is not answered
	n     int
	other func() // writes beside, in the renewed log
}

func (r *renewing) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	switch r.n++; r.n {
	case r.at:
		if r.store {
			if _, err := r.Log.Append(ctx, p, after); err != nil {
				return 0, err
			}
		}
		if r.other != nil {
			r.other()
		}
		return 0, producers.ErrUnanswered
	case r.at + 1:
		return 0, producers.ErrRenewed
	}
	return r.Log.Append(ctx, p, after)
}

// Since knows nothing behind the positions of the log before.
func (r *renewing) Since(ctx context.Context, k schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	if r.n == r.at {
		return func(func(schema.Pack, error) bool) {}
	}
	return r.Log.Since(ctx, k, after)
}

// TestUnansweredInARenewedLog: a pack whose answer was lost with the log is looked for by its lines: stored, it is
// not stored again; lost, its events get the next numbers, whoever has taken theirs.
func TestUnansweredInARenewedLog(t *testing.T) {
	for name, c := range map[string]struct {
		store, other bool
		first        schema.Seq // of the answer
		last         schema.Seq // of the run
	}{
		"stored":              {true, false, 2, 4},
		"stored, others also": {true, true, 2, 5},
		"lost":                {false, false, 2, 4},
		"lost, others first":  {false, true, 3, 5},
	} {
		t.Run(name, func(t *testing.T) {
			log := &renewing{Log: memory.New(), store: c.store, at: 2}
			if c.other {
				log.other = func() {
					a, _ := producers.NewAppender(producers.AppenderConfig{Log: log.Log})
					if _, err := a.Append(context.Background(), key, []schema.Event{text("", "o:0")},
						producers.AppendOptions{}); err != nil {
						t.Error(err)
					}
				}
			}
			a, err := producers.NewAppender(producers.AppenderConfig{Log: log})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Append(t.Context(), key, batch("w", 0, 1), producers.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			r, err := a.Append(t.Context(), key, batch("w", 1, 3), producers.AppendOptions{})
			if err != nil || r.First != c.first {
				t.Fatalf("%+v, %v", r, err)
			}
			want := map[string]int{"w": 4}
			if c.other {
				want["o"] = 1
			}
			checkRun(t, log.Log, key, want)
			if head, _ := log.Log.Head(t.Context(), key, ""); head.Last != c.last {
				t.Errorf("the run ends at %d", head.Last)
			}
		})
	}
	if !errors.Is(producers.ErrRenewed, producers.ErrConflict) {
		t.Error("a renewed log is no conflict")
	}
}
