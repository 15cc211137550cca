package producers_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

var described = schema.Event{Type: schema.TypeSessionUpdated, Payload: []byte(`{"title":"t"}`)}

// TestFirstIsStoredOnce holds that of all that begin a run at once one stores its First, before its own events.
func TestFirstIsStoredOnce(t *testing.T) {
	log := memory.New()
	var all sync.WaitGroup
	for range 4 {
		a, err := producers.NewAppender(producers.AppenderConfig{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			all.Go(func() {
				if _, err := a.Append(t.Context(), key, []schema.Event{{Type: "custom.x"}},
					producers.AppendOptions{First: []schema.Event{described}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	types := map[string][]schema.Seq{}
	for p, err := range log.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range p.Records(0) {
			types[string(r.Type)] = append(types[string(r.Type)], r.Seq)
		}
	}
	if len(types["custom.x"]) != 16 || len(types[described.Type]) != 1 || types[described.Type][0] != 1 {
		t.Errorf("%v", types)
	}
}

// TestFirstIsFoundAgain holds that a repeat whose answer was lost finds what it has stored, and that First is no part
// of what its key stands for.
func TestFirstIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := producers.NewAppender(producers.AppenderConfig{Log: memory.New(), Keys: new(silentKeys)})
		if err != nil {
			t.Fatal(err)
		}
		opt := producers.AppendOptions{IdempotencyKey: "k", First: []schema.Event{described}}
		for i, first := range [][]schema.Event{{described}, {described}, nil} {
			if opt.First = first; i == 2 {
				opt.IdempotencyKey = "other" // a run that has events is not described
			}
			got, err := a.Append(t.Context(), key, batch("w", i/2, 1), opt)
			want := []producers.Receipt{{First: 1, Last: 2}, {First: 1, Last: 2, Replayed: true}, {First: 3, Last: 3}}[i]
			if err != nil || got != want {
				t.Errorf("%d: %+v %v, want %+v", i, got, err, want)
			}
		}
		at := new(schema.BatchError)
		_, err = a.Append(t.Context(), schema.RunKey{Tenant: key.Tenant, Run: "other"},
			[]schema.Event{{Type: "custom.x"}, {Type: "custom.x", Seq: 9}}, opt)
		if !errors.As(err, &at) || at.Line != 2 {
			t.Errorf("a bad number in line 2 is told as %v", err)
		}
	})
}
