package edge_test

import (
	"context"
	"testing"

	"agentstream/edge"
	"agentstream/edge/workers"
	"agentstream/fanout/memory"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// workPath is the stream of tasks.
const workPath = "/v1/agent/work"

// idleWorkers returns workers to whom no message comes, for so many agents of a tenant at most; -1 is for none.
func idleWorkers(t testing.TB, log *memory.Log, most int) *workers.Workers {
	t.Helper()
	follow := func(ctx context.Context, _ string, _ func(schema.Pack, func())) error {
		<-ctx.Done()
		return ctx.Err()
	}
	w, err := workers.New(workers.Config{Worker: worker.Config{Log: log}, Follow: follow, MaxSeats: most})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// work asks for tasks: as one agent, as one too many, and with a number of places that cannot be.
func (k *talk) work() {
	h := k.house(func(c *edge.Config) { c.Workers = idleWorkers(k.t, memory.New(), 1) })
	if a := k.open(h, workPath); a.Status != 200 {
		k.t.Errorf("a worker: %d %s", a.Status, a.Body)
	}
	h.ask("GET", workPath, "", "", "").Expect(k.t, 429, "RATE-LIMITED")
	tight := k.house(func(c *edge.Config) { c.Workers, c.MaxStreams = idleWorkers(k.t, memory.New(), 2), 1 })
	k.open(tight, workPath)
	tight.ask("GET", workPath, "", "", "").Expect(k.t, 503, "BUSY")
	for _, places := range []string{"0", "257", "-1", "x"} {
		h.ask("GET", workPath, "", "?places="+places, "").Expect(k.t, 400, "BAD-REQUEST")
	}
}
