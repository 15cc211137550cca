package natsjs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// TestPenOnAStoppedLog: when the log is gone and the buffer full, everybody who speaks waits; a cancellation
// ends them all and comes back within its grace, and nobody is kept from looking.
func TestPenOnAStoppedLog(t *testing.T) {
	k := testkit.NATS(t)
	log, err := natsjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "acme", Run: "run_1"},
		BufferEvents: 8, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	const grace = 500 * time.Millisecond
	r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: "run_1", Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	own := context.Background() // nobody but a cancellation ends it
	turn, err := r.Turn(own)
	if err != nil {
		t.Fatal(err)
	}
	child, err := r.Spawn(own, "run_a", "", "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(own); err != nil {
		t.Fatal(err)
	}
	k.Server.Shutdown()
	k.Server.WaitForShutdown()

	var all sync.WaitGroup
	for _, say := range []func() error{
		func() error { return m.Text("word ") },
		func() error { return r.Emit(own, schema.TypeProgress, nil) },
		func() error { return child.Emit(own, schema.TypeProgress, nil) },
	} {
		all.Go(func() {
			for range 1000 {
				if err := say(); err != nil {
					if !errors.Is(err, producers.ErrOver) {
						t.Errorf("who waited says %v", err)
					}
					return
				}
			}
			t.Error("a stopped log has taken everything")
		})
	}
	time.Sleep(300 * time.Millisecond) // until the buffer is full
	// None of these waits for the log, which stays stopped.
	r.Receive(&schema.Event{Type: "command.cancel", RunID: "run_1"})
	_, _ = turn.ID(), turn.Context().Err()
	if err := r.Cancel(own, "stop"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled on a stopped log: %v", err)
	}
	_ = turn.Calls()
	_ = turn.Close()
	all.Wait()
	ctx, cancel := context.WithTimeout(own, 100*time.Millisecond)
	defer cancel()
	_ = pub.Close(ctx) // nothing of it is stored, and it says so
}
