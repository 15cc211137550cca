package live

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestTurnOfTheWriter: what a writer hands over is shown when it returns, by its own goroutine, unless many watch. A
// panic ends the view and not the writer.
func TestTurnOfTheWriter(t *testing.T) {
	key := schema.RunKey{Tenant: "acme", Run: "turns"}
	hub, err := fanout.New(fanout.Config{Stream: memory.New(), Tail: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	all := &views{hub: hub}
	defer func() { all.close(); cancel(); <-ended }()
	v, err := all.join(viewKey{src: runs.Source{Key: key}, every: time.Minute}, shape.Filter{},
		runs.Opened{Src: runs.Source{Key: key}, Await: true})
	if err != nil {
		t.Fatal(err)
	}
	rests := func() {
		for end := time.Now().Add(10 * time.Second); v.task.state.Load() != resting; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the turn is in state %d", v.task.state.Load())
			}
		}
	}
	packs := schematest.Packs(key, schematest.Generate(8, 1), 1)
	for i := range 4 {
		rests()
		hub.Deliver(packs[i])
		if hi := v.now.Load().hi; hi != packs[i].Last() {
			t.Fatalf("event %d is not shown when its writer returns: %d", packs[i].Last(), hi)
		}
	}
	rests()
	v.parkedCount.Store(inlineLimit + 1)
	v.mu.Lock() // whoever shows something waits
	hub.Deliver(packs[4])
	v.mu.Unlock()
	rests()
	if hi := v.now.Load().hi; hi != packs[4].Last() {
		t.Fatalf("event %d is not shown: %d", packs[4].Last(), hi)
	}
	v.parkedCount.Store(0)
	v.task.st = panics{}
	hub.Deliver(packs[5])
	if err := v.now.Load().err; !errors.Is(err, ends.ErrPanic) {
		t.Fatalf("a view whose turn has panicked ends with %v", err)
	}
}

// panics is a stage that does.
type panics struct{ stage }

func (panics) Add([]shape.Out, time.Time, schema.Record) []shape.Out { panic("a defect") }
