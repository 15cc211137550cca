package producers_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// chaos is a log whose answers get lost, whose publishes get lost or arrive late, and which is
// unavailable now and then. Each fault is counted: a run in which one never fired proves nothing.
type chaos struct {
	*memory.Log
	mu    sync.Mutex
	rnd   *rand.Rand
	rate  float64
	late  []func()
	fired map[string]int
	only  string        // when set, the one fault that happens
	gate  chan struct{} // when set, appends wait for it to be closed
}

func newChaos(seed uint64, rate float64) *chaos {
	return &chaos{Log: memory.New(), rnd: rand.New(rand.NewPCG(seed, 1)), rate: rate, fired: make(map[string]int)}
}

func (c *chaos) roll() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rnd.Float64() >= c.rate {
		return ""
	}
	fault := []string{"answer lost", "publish lost", "publish late", "unavailable"}[c.rnd.IntN(4)]
	if c.only != "" {
		fault = c.only
	}
	c.fired[fault]++
	return fault
}

// deliverLate stores what was on the way, in any order: its compare-and-set decides.
func (c *chaos) deliverLate() {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, f := range late {
		f()
	}
}

func (c *chaos) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if c.gate != nil {
		<-c.gate
	}
	q := *p
	q.Body = append([]byte(nil), p.Body...)
	q.Head = p.Head.Clone()
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
		c.deliverLate()
	}
	return c.Log.Append(ctx, &q, after)
}

func (c *chaos) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if c.roll() == "unavailable" {
		return schema.Head{}, schema.ErrUnavailable
	}
	return c.Log.Head(ctx, key, lane)
}

func (c *chaos) Adopt(ctx context.Context, root schema.RunKey, child string) error {
	switch c.roll() {
	case "answer lost":
		_ = c.Log.Adopt(ctx, root, child)
		return schema.ErrUnanswered
	case "":
		return c.Log.Adopt(ctx, root, child)
	}
	return schema.ErrUnavailable
}

func (c *chaos) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	if c.roll() == "unavailable" {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, schema.ErrUnavailable) }
	}
	return c.Log.Since(ctx, key, after)
}

var _ producers.Log = (*chaos)(nil)

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

func text(child, s string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, ChildID: child, Payload: fmt.Appendf(nil, `{"text":%q}`, s)}
}

// checkRun is the one checker: numbers without a hole, no event twice, each writer's own order, and
// everything acknowledged is there. Texts are "<writer>:<n>"; acked has how many each got through.
func checkRun(t *testing.T, log producers.Log, k schema.RunKey, acked map[string]int) {
	t.Helper()
	next := schema.Seq(1)
	seen := make(map[string]int)
	lastID := ""
	for p, err := range log.Since(context.Background(), k, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Seq != next {
				t.Fatalf("seq %d where %d is next", r.Seq, next)
			}
			next++
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			if e.ID <= lastID {
				t.Fatalf("seq %d: id %s after %s", r.Seq, e.ID, lastID)
			}
			lastID = e.ID
			if e.Type != schema.TypeTextDelta {
				continue
			}
			var who string
			var n int
			s := strings.Trim(strings.TrimPrefix(string(e.Payload), `{"text":`), `"}`)
			who, num, _ := strings.Cut(s, ":")
			if _, err := fmt.Sscan(num, &n); err != nil {
				t.Fatalf("payload %s: %v", e.Payload, err)
			}
			if n != seen[who] {
				t.Fatalf("writer %s: event %d where %d is next (seq %d)", who, n, seen[who], r.Seq)
			}
			seen[who]++
		}
	}
	for who, n := range acked {
		if seen[who] < n {
			t.Fatalf("writer %s: %d acknowledged, %d stored", who, n, seen[who])
		}
	}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
