package fanout

import (
	"fmt"
	"testing"

	"agentstream/schema"
)

// TestRingsAreShared: a tenant that watches very many runs makes its own rings small, and not those of others.
func TestRingsAreShared(t *testing.T) {
	h := &Hub{cfg: Config{}.withDefaults()}
	small := newTopic(h, schema.RunKey{Tenant: "globex", Run: "run_1"})
	alone := small.ringLimit()
	var many []*topic
	for i := range 10_000 {
		many = append(many, newTopic(h, schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}))
	}
	if got := small.ringLimit(); got != alone {
		t.Errorf("beside a tenant that watches 10,000 runs: %d bytes, alone %d", got, alone)
	}
	if got := many[0].ringLimit(); got != minRing {
		t.Errorf("one of 10,000: %d bytes", got)
	}
}
