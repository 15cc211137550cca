package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"agentstream/schema"
)

// cancelledAt returns a tour whose context was cancelled while it said its event n: its ending begins behind it.
func cancelledAt(t *testing.T, n int) []schema.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{fail: func(have int) error {
		if have == n {
			cancel()
		}
		return nil
	}}
	a, err := New(Config{Sink: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled at %d: %v", n, err)
	}
	return r.events
}

// mutations returns what is not allowed, made of what is: a run whose ending begins at n.
func mutations(events []schema.Event, n int) map[string][]schema.Event {
	out := map[string][]schema.Event{}
	for i := n; i < len(events); i++ {
		out[fmt.Sprintf("drop %d", i)] = slices.Delete(slices.Clone(events), i, i+1)
		out[fmt.Sprintf("twice %d", i)] = slices.Insert(slices.Clone(events), i, events[i])
		if i > n {
			m := slices.Clone(events)
			m[i-1], m[i] = m[i], m[i-1]
			out[fmt.Sprintf("swap %d", i)] = m
		}
		for from, to := range map[string]string{`"complete":false`: `"complete":true`, `"ok":false`: `"ok":true`,
			`"stop_reason":"cancelled"`: `"stop_reason":"end_turn"`, `"state":"aborted"`: `"state":"done"`,
			`"text","text":"`:    `"text","text":"x`,
			`"type":"cancelled"`: `"type":"error"`} {
			if bytes.Contains(events[i].Payload, []byte(from)) {
				m := slices.Clone(events)
				m[i].Payload = bytes.Replace(m[i].Payload, []byte(from), []byte(to), 1)
				out[fmt.Sprintf("change %d %s", i, from)] = m
			}
		}
	}
	out["more"] = append(slices.Clone(events), schema.Event{Type: schema.TypeProgress, Payload: []byte(`{}`)})
	out["gap "] = slices.Delete(slices.Clone(events), n/2, n/2+1)
	return out
}
