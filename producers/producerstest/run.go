package producerstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// Key is the run that tests write.
var Key = schema.RunKey{Tenant: "acme", Run: "run_1"}

// Text returns a delta of text in a lane.
func Text(child, s string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, ChildID: child, Payload: fmt.Appendf(nil, `{"text":%q}`, s)}
}

// State returns a run.lifecycle event without a reason.
func State(s schema.RunState) schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Payload: fmt.Appendf(nil, `{"state":%q,"reason":null}`, s)}
}

// Deadline returns a context that ends after d, or with the test.
func Deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Open opens a publisher that owns its lanes.
func Open(t *testing.T, log producers.Log) *producers.Publisher {
	t.Helper()
	pub, err := producers.New(producers.Config{Log: log, Key: Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pub.Close(context.Background()) })
	return pub
}

// Put appends events through a publisher.
func Put(t *testing.T, pub *producers.Publisher, events ...schema.Event) {
	t.Helper()
	if _, err := pub.Append(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
}

// Post appends an event to the run beside its owner, as HTTP does, and returns the number.
func Post(t *testing.T, log producers.Log, lane, typ, payload string) schema.Seq {
	t.Helper()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Append(context.Background(), Key,
		[]schema.Event{{Type: typ, ChildID: lane, Actor: "user", Payload: []byte(payload)}}, producers.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Last
}

// Types lists the types of the run's events.
func Types(t *testing.T, log producers.Log) (out []string) {
	t.Helper()
	for p, err := range log.Since(context.Background(), Key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(r.Type))
		}
	}
	return out
}
