package producers_test

import (
	"context"
	"fmt"
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestChildrenAreCheckedOnce: events of many children, each of which is a pack of its own, are looked at once, and not
// again for each child.
func TestChildrenAreCheckedOnce(t *testing.T) {
	const children = 300
	var events []schema.Event
	for i := range children {
		events = append(events, schema.Event{Type: schema.TypeTextDelta, ChildID: fmt.Sprintf("run_c%d", i),
			Payload: []byte(`{"text":"a"}`)})
	}
	a := appender(t, memory.New(), nil)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	for _, name := range []string{"a run that begins", "a run that goes on"} {
		looked := 0
		opt := producers.AppendOptions{Admit: func(_ context.Context, _ schema.RunKey, _ schema.Head, rest []schema.Event) error {
			looked += len(rest)
			return nil
		}}
		receipt, err := a.Append(t.Context(), key, events, opt)
		if err != nil {
			t.Fatal(err)
		}
		if n := receipt.Last - receipt.First + 1; n != children {
			t.Errorf("%s: %d events are stored", name, n)
		}
		if looked > 3*children {
			t.Errorf("%s: %d events are looked at %d times", name, children, looked)
		}
	}
}
