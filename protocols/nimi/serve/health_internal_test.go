package serve

import (
	"testing"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestLatestHealth: of many states that nobody reads the latest 8 wait.
func TestLatestHealth(t *testing.T) {
	states := make(chan *runtimev1.RuntimeHealthEvent, latestHealth)
	for i := range uint64(20) {
		note(states, &runtimev1.RuntimeHealthEvent{Sequence: i})
	}
	if len(states) != 8 {
		t.Fatalf("%d wait", len(states))
	}
	for i := uint64(12); i < 20; i++ {
		if m := <-states; m.GetSequence() != i {
			t.Errorf("state %d, want %d", m.GetSequence(), i)
		}
	}
}
