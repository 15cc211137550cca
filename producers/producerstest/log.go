package producerstest

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// FaultyLog is a log in memory whose answers get lost, whose publishes get lost or arrive late, and which is
// unavailable now and then. Each fault is counted: a run in which one never fired proves nothing.
type FaultyLog struct {
	*memory.Log
	mu    sync.Mutex
	rnd   *rand.Rand
	rate  float64
	late  []func()
	Fired map[string]int
	Only  string        // when set, the one fault that happens
	Gate  chan struct{} // when set, appends wait for it to be closed
}

// NewFaultyLog returns a log in which a call fails with the probability rate. Equal seeds have equal faults.
func NewFaultyLog(seed uint64, rate float64) *FaultyLog {
	return &FaultyLog{Log: memory.New(), rnd: rand.New(rand.NewPCG(seed, 1)), rate: rate, Fired: make(map[string]int)}
}

func (c *FaultyLog) roll() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rnd.Float64() >= c.rate {
		return ""
	}
	fault := []string{"answer lost", "publish lost", "publish late", "unavailable"}[c.rnd.IntN(4)]
	if c.Only != "" {
		fault = c.Only
	}
	c.Fired[fault]++
	return fault
}

// DeliverLate stores what was on the way, in any order: its compare-and-set decides.
func (c *FaultyLog) DeliverLate() {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// Append fails, stores late, or stores.
func (c *FaultyLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if c.Gate != nil {
		<-c.Gate
	}
	q := *p
	q.Body = append([]byte(nil), p.Body...)
	q.Head = p.Head
	switch c.roll() {
	case "answer lost":
		_, _ = c.Log.Append(ctx, &q, after)
		return 0, schema.ErrUnanswered
	case "publish lost":
		return 0, schema.ErrUnanswered
	case "publish late":
		c.mu.Lock()
		c.late = append(c.late, func() { _, _ = c.Log.Append(context.Background(), &q, after) })
		c.mu.Unlock()
		return 0, schema.ErrUnanswered
	case "unavailable":
		return 0, schema.ErrUnavailable
	}
	if c.roll() != "" {
		c.DeliverLate()
	}
	return c.Log.Append(ctx, &q, after)
}

// Head fails now and then.
func (c *FaultyLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if c.roll() == "unavailable" {
		return schema.Head{}, schema.ErrUnavailable
	}
	return c.Log.Head(ctx, key, lane)
}

// Lanes fails now and then.
func (c *FaultyLog) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	if c.roll() == "unavailable" {
		return nil, schema.ErrUnavailable
	}
	return c.Log.Lanes(ctx, key, lanes)
}

// Adopt fails now and then, also after it has done its work, or half of it.
func (c *FaultyLog) Adopt(ctx context.Context, root schema.RunKey, children ...string) error {
	switch c.roll() {
	case "answer lost":
		_ = c.Log.Adopt(ctx, root, children...)
		return schema.ErrUnanswered
	case "publish lost":
		_ = c.Log.Adopt(ctx, root, children[:len(children)/2]...)
		return schema.ErrUnanswered
	case "":
		return c.Log.Adopt(ctx, root, children...)
	}
	return schema.ErrUnavailable
}

// Since fails now and then.
func (c *FaultyLog) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	if c.roll() == "unavailable" {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, schema.ErrUnavailable) }
	}
	return c.Log.Since(ctx, key, after)
}

var _ producers.Log = (*FaultyLog)(nil)
