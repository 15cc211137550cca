package producers_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/producers/producerstest"
	"agentstream/schema"
)

// kept is a past of packs; broken fails once, after its first pack.
type kept struct {
	packs  []schema.Pack
	broken error
}

func (k *kept) Packs(_ context.Context, _ schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for _, p := range k.packs {
			if p.Last() <= after || p.First > through {
				continue
			}
			if !yield(p, nil) {
				return
			}
			if err := k.broken; err != nil {
				k.broken = nil
				yield(schema.Pack{}, err)
				return
			}
		}
	}
}

// A walk gives each event once: out of the log, what has left it out of the past, on from where it was cut, and says by
// the first number of a pack what nobody keeps.
func TestWalk(t *testing.T) {
	log := memory.New()
	for range 4 {
		producerstest.Post(t, log, "", schema.TypeProgress, `{"message":"a"}`)
	}
	var all []schema.Pack
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	firsts := func(w *producers.Walk, stop int) (got []schema.Seq, failed error) {
		for p, err := range w.Packs(t.Context()) {
			if err != nil {
				return got, err
			}
			got = append(got, p.First)
			if len(got) == stop {
				break
			}
		}
		return got, nil
	}
	trimmed := &short{Log: log, from: 3}
	for name, tt := range map[string]struct {
		log  producers.Log
		past producers.Past
		only bool
		want int
	}{
		"in the log":         {log: log, want: 4},
		"beginning is past":  {log: trimmed, past: &kept{packs: all[:2]}, want: 4},
		"past has more":      {log: trimmed, past: &kept{packs: all}, want: 4},
		"beginning is lost":  {log: trimmed, past: &kept{}, want: 2},
		"no past":            {log: trimmed, want: 2},
		"all is past":        {log: &short{Log: log, from: 100}, past: &kept{packs: all}, want: 4},
		"all is past, a log": {log: &short{Log: log, from: 100}, past: &kept{packs: all}, only: true},
	} {
		w := &producers.Walk{Log: tt.log, Past: tt.past, Key: key, LogOnly: tt.only}
		if got, err := firsts(w, 0); err != nil || len(got) != tt.want {
			t.Errorf("%s: packs %v, want %d, %v", name, got, tt.want, err)
		}
		if got, _ := firsts(w, 0); len(got) != 0 {
			t.Errorf("%s: %v come again", name, got)
		}
	}
	w := &producers.Walk{Log: trimmed, Past: &kept{packs: all[:2], broken: errors.New("away")}, Key: key}
	if got, err := firsts(w, 0); err == nil || len(got) != 1 || w.Last != 1 {
		t.Errorf("an error is no end: %v, %v, at %d", got, err, w.Last)
	}
	if got, err := firsts(w, 2); err != nil || len(got) != 2 || w.Last != 2 {
		t.Errorf("after an error: %v, %v, at %d", got, err, w.Last)
	}
	if got, err := firsts(w, 0); err != nil || len(got) != 2 || w.Last != 4 {
		t.Errorf("after a stop: %v, %v, at %d", got, err, w.Last)
	}
}

// short is a log that has lost its beginning.
type short struct {
	producers.Log
	from schema.Seq
}

func (s *short) Since(ctx context.Context, k schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range s.Log.Since(ctx, k, after) {
			if err == nil && p.First < s.from {
				continue
			}
			if !yield(p, err) {
				return
			}
		}
	}
}
