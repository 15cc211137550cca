package producers_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"agentstream/fanout/memory"
	"agentstream/internal/fair"
	"agentstream/producers"
	"agentstream/schema"
)

// A tenant that uses as many idempotency keys as are remembered of it is refused, and stores nothing then; its repeats
// used none, what it sends without a key goes on, and so do another tenant's keys.
func TestKeysAreShared(t *testing.T) {
	const most = 20
	now := time.Unix(1_700_000_000, 0)
	log := memory.New()
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: &memory.Keys{},
		Quota: fair.NewQuota(most, time.Hour),
		Now:   func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	post := func(tenant, key string) (producers.Receipt, error) {
		events := []schema.Event{{Type: "text.delta", Payload: []byte(`{"text":"x"}`)}}
		return app.Append(t.Context(), schema.RunKey{Tenant: tenant, Run: "run_1"}, events,
			producers.AppendOptions{IdempotencyKey: key})
	}
	for i := range most {
		for again := range min(3, most-i) { // where none is left nobody looks for a repeat
			r, err := post("acme", fmt.Sprint("key_", i))
			if err != nil || r.Replayed != (again > 0) {
				t.Fatalf("key %d, time %d: %+v, %v", i, again, r, err)
			}
		}
	}
	before, err := post("acme", "")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := post("acme", "one more"); !errors.Is(err, producers.ErrKeys) {
			t.Fatalf("one more: %v", err)
		}
	}
	if r, err := post("globex", "key"); err != nil {
		t.Errorf("another tenant: %+v, %v", r, err)
	}
	now = now.Add(time.Hour / most)
	r, err := post("acme", "one more")
	if err != nil || r.First != before.Last+1 {
		t.Errorf("in time: %+v after %+v, %v", r, before, err)
	}
}
