//go:build !race

package demo

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"agentstream/schema"
)

// TestCancelAnywhere cancels each script's context before each of its events: it always ends as aborted,
// with all that was open closed, in an allowed order.
func TestCancelAnywhere(t *testing.T) {
	cause := errors.New("the user has seen enough")
	for _, script := range Scripts() {
		cfg := Config{Script: script, PlanningGate: gatePreview}
		whole, err := run(t, t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole.events {
			ctx, cancel := context.WithCancelCause(t.Context())
			r := &recorder{}
			r.fail = func(have int) error {
				if have == n {
					cancel(cause)
				}
				return nil
			}
			cfg.Sink = r
			a, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = a.Run(ctx)
			cancel(nil)
			if err == nil { // the end was on its way
				if !reflect.DeepEqual(r.events, whole.events) || n < len(whole.events)-6 {
					t.Fatalf("%s, cancelled at %d: not noticed", script, n)
				}
				continue
			}
			if !errors.Is(err, cause) {
				t.Fatalf("%s, cancelled at %d: %v", script, n, err)
			}
			f := check(t, r.events)
			if f.State != schema.StateAborted || f.Reason != cause.Error() {
				t.Fatalf("%s, cancelled at %d: state %s, reason %q", script, n, f.State, f.Reason)
			}
			if err := checkEnding(r.events, whole.events); err != nil {
				t.Fatalf("%s, cancelled at %d: %v", script, n, err)
			}
			if r.flushes[len(r.flushes)-1] != len(r.events) {
				t.Fatalf("%s, cancelled at %d: the end was not flushed", script, n)
			}
		}
	}
}

// TestTheCheckerSees: whatever is left out of an ending, said twice, exchanged or changed is seen.
func TestTheCheckerSees(t *testing.T) {
	whole, err := run(t, t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for n := 3; n < len(whole.events)-1; n += 13 {
		events := cancelledAt(t, n)
		if err := checkEnding(events, whole.events); err != nil {
			t.Fatalf("cancelled at %d: %v", n, err)
		}
		for name, m := range mutations(events, n+1) {
			tried[name[:4]]++
			if err := checkEnding(m, whole.events); !errors.Is(err, errRule) {
				t.Fatalf("cancelled at %d, %s: not seen", n, name)
			}
		}
	}
	if len(tried) != 6 || tried["swap"] < 100 {
		t.Errorf("tried %v", tried)
	}
	t.Log(tried)
}
