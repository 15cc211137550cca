package persistertest

import (
	"fmt"
	"slices"
	"testing"

	"agentstream/schema"
)

// CheckModels checks that a run is found by the model of its newest message, in whatever order its messages are stored
// and stored again, and although most name the model of the one before them. ask is that of CheckRepeats.
func CheckModels(t *testing.T, s SuiteStore, ask func(text, arg string) []string) {
	t.Helper()
	for i, order := range [][]int{{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}, {3, 0, 1, 2}, {0, 3, 2, 1}, {2, 3, 1, 0}, {1, 3, 0, 2}} {
		for twice := range 2 {
			name := fmt.Sprintf("run_%d_%d", i, twice)
			w := NewWriter(schema.RunKey{Tenant: name, Run: name}, "20260228")
			var packs []schema.Pack
			for _, model := range []string{"a", "b", "a", "a"} {
				packs = append(packs, w.Pack("", Event(schema.TypeMessageStart,
					fmt.Sprintf(`{"message_id":"m%d","role":"assistant","model":%q}`, len(packs), model))))
			}
			newest := 0
			for _, at := range order {
				newest = max(newest, at)
				for range 1 + twice {
					Put(t, s, packs[at])
				}
				got := ask(`select model from agent_runs where id = $1`, name)
				if want := []string{[]string{"a", "b", "a", "a"}[newest]}; !slices.Equal(got, want) {
					t.Fatalf("order %d, after %d: the model is %q, want %q", order, at, got, want)
				}
			}
		}
	}
}
