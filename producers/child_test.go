package producers_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// asked counts what a log is asked.
type asked struct {
	*memory.Log
	n map[string]int
}

func (l *asked) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	l.n["head"]++
	return l.Log.Head(ctx, key, lane)
}

func (l *asked) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	l.n["append"]++
	return l.Log.Append(ctx, p, after)
}

func (l *asked) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	l.n["since"]++
	return l.Log.Since(ctx, key, after)
}

func (l *asked) Adopt(ctx context.Context, root schema.RunKey, children ...string) error {
	l.n["adopt"]++
	return l.Log.Adopt(ctx, root, children...)
}

func (l *asked) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	l.n["lanes"]++
	return l.Log.Lanes(ctx, key, lanes)
}

func (l *asked) take() map[string]int {
	n := l.n
	l.n = map[string]int{}
	return n
}

// An append to a run asks the log for nothing but to store it, once the run is known here; only spawns, and what is
// appended to a child's id, ask for more. The archive is asked about an id once, when nobody knows it.
func TestOrdinaryAppendsAskForNothingMore(t *testing.T) {
	log := &asked{Log: memory.New(), n: map[string]int{}}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log,
		Parent: func(context.Context, string, string) (string, error) {
			log.n["parent"]++
			return "", nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	spawn := schema.Event{Type: schema.TypeChildSpawn, Payload: []byte(`{"child_id":"kid"}`)}
	for _, step := range []struct {
		run   string
		event schema.Event
		times int
		want  map[string]int
	}{
		{"root", text("", "a"), 1, map[string]int{"head": 1, "parent": 1, "append": 1}},
		{"root", text("", "a"), 100, map[string]int{"append": 100}},
		{"root", text("kid", "a"), 1, map[string]int{"lanes": 1, "append": 1}}, // the lane is new here
		{"root", text("kid", "a"), 100, map[string]int{"append": 100}},
		{"root", spawn, 1, map[string]int{"adopt": 1, "append": 1}},
		{"kid", text("", "a"), 1, map[string]int{"head": 1, "append": 1}},
		{"kid", text("", "a"), 100, map[string]int{"head": 100, "append": 100}},
		{"root", text("", "a"), 100, map[string]int{"append": 100}},
	} {
		for range step.times {
			if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: step.run},
				[]schema.Event{step.event}, producers.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := log.take(); !maps.Equal(got, step.want) {
			t.Errorf("%d appends of %s to %s ask %v, want %v", step.times, step.event.Type, step.run, got, step.want)
		}
	}
}

// The log does not answer for a while: spawns and a child's events are stored once, where they belong, whatever is
// lost on the way.
func TestChildInChaos(t *testing.T) {
	for seed := range uint64(8) {
		c := newChaos(seed, 0.25)
		root := schema.RunKey{Tenant: "acme", Run: "root"}
		app, err := producers.NewAppender(producers.AppenderConfig{Log: c})
		if err != nil {
			t.Fatal(err)
		}
		put := func(run string, e schema.Event) {
			for {
				if _, err := app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: run}, []schema.Event{e},
					producers.AppendOptions{}); err == nil {
					return
				}
			}
		}
		for i := range 3 {
			kid := fmt.Sprint("kid_", i)
			put("root", schema.Event{Type: schema.TypeChildSpawn, Payload: fmt.Appendf(nil, `{"child_id":%q}`, kid)})
			for n := range 5 {
				put(kid, text("", fmt.Sprintf("%s:%d", kid, n)))
			}
			if head, err := c.Log.Head(t.Context(), schema.RunKey{Tenant: "acme", Run: kid}, ""); err != nil ||
				head.HasEvents() || head.Root != "root" {
				t.Fatalf("seed %d: %+v, %v", seed, head, err)
			}
		}
		children := map[string]int{}
		for p, err := range c.Log.Since(t.Context(), root, 0) {
			if err != nil {
				t.Fatal(err)
			}
			children[p.Child] += p.Count
		}
		for i := range 3 {
			if n := children[fmt.Sprint("kid_", i)]; n != 5 {
				t.Errorf("seed %d: %v", seed, children)
			}
		}
	}
}
