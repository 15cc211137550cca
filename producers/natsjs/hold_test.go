package natsjs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// TestHold: commands beside an agent that never stops writing are stored after a few plans each, by asking the agent to
// wait; what asks is no part of the run to any reader; and an agent of an old program is not asked.
func TestHold(t *testing.T) {
	k, l := open(t)
	agent, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			pending, err := agent.Publish(t.Context(), text("", "a"))
			if err == nil {
				_, err = pending.Wait(t.Context())
			}
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- agent.Close(t.Context())
	}()
	time.Sleep(20 * time.Millisecond)
	node, _ := producers.NewAppender(producers.AppenderConfig{Log: l})
	for i := range 3 {
		plans := 0
		plan := func(_ context.Context, _ schema.Head, given []schema.Event) ([]schema.Event, error) {
			plans++
			time.Sleep(30 * time.Millisecond)
			return given, nil
		}
		_, err := node.Append(t.Context(), key, []schema.Event{text("", fmt.Sprint("stop ", i))}, producers.AppendOptions{
			Whole: true, Plan: plan, Within: time.Minute,
		})
		if err != nil || plans < 2 || plans > 20 {
			t.Errorf("command %d, planned %d times: %v", i, plans, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	run := natskit.RunAddress{Key: key, Partitions: k.Partitions}
	before, err := l.Head(t.Context(), key, "")
	if err == nil {
		err = l.Hold(t.Context(), key, "somebody")
	}
	held, err2 := l.Head(t.Context(), key, "")
	if err != nil || err2 != nil || held.Last != before.Last || held.LastID != before.LastID ||
		held.Stored <= before.Stored || held.Held != "somebody" {
		t.Errorf("%+v before, held %+v: %v, %v", before, held, err, err2)
	}
	if seq, at, err := l.Newest(t.Context(), key); err != nil || seq != before.Last || at.IsZero() {
		t.Errorf("newest %d at %v, %v", seq, at, err)
	}
	if err := natskit.Hold(t.Context(), k.Conn, run, "another"); err != nil { // while somebody does
		t.Error(err)
	}
	if still, _ := l.Head(t.Context(), key, ""); still.Held != "somebody" || still.Stored != held.Stored {
		t.Errorf("held by two: %+v", still)
	}
	if _, err := node.Append(t.Context(), key, []schema.Event{text("", "after all")},
		producers.AppendOptions{}); err != nil {
		t.Error(err)
	}
	stored(t, l, key) // without a hole
}

// TestHoldNotOfOldPrograms: they take the message for that of a child, so where the newest pack is of one nothing is
// asked.
func TestHoldNotOfOldPrograms(t *testing.T) {
	_, l := open(t)
	p := &schema.Pack{Key: key, First: 1, Count: 1, Writer: "ABCDEFGHIJKLMNOPQRST",
		Body: []byte(`{"id":"evt_1","ts":"2026-01-02T00:00:00Z","type":"note","run_id":"run_1","child_id":null,"seq":1,"payload":{}}` + "\n")}
	p.Head = schema.Head{Last: 1, LastID: "evt_1", Day: "20260102"}
	if _, err := l.Append(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	err := l.Hold(t.Context(), key, "somebody")
	if head, _ := l.Head(t.Context(), key, ""); err != nil || head.Held != "" {
		t.Errorf("%+v, %v", head, err)
	}
}
