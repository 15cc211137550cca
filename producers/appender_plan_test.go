package producers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestPlan: what is stored is what was planned for the very head that it follows, in whatever lane that is, and it is
// planned again when others were faster. Nothing need be given, and a plan without an event stores nothing.
func TestPlan(t *testing.T) {
	log := memory.New()
	var stored []schema.Event
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: new(memoryKeys),
		Appended: func(_ schema.RunKey, events []schema.Event) {
			stored = append(stored[:0], events...)
		}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	put := func(on *producers.Appender, events ...schema.Event) {
		t.Helper()
		if _, err := on.Append(t.Context(), key, events, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(a, text("", "one"))
	put(a, text("kid", "two"))
	put(b, text("", "three")) // a does not know it
	var asked []schema.Seq
	plan := func(_ context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
		if asked = append(asked, head.Last); len(given) != 0 {
			t.Errorf("given %d events", len(given))
		}
		lane := []string{"kid", ""}[head.Last%2] // for a head that is old it would be the other one
		return []schema.Event{text(lane, fmt.Sprint("after ", head.Last)), text(lane, "and more")}, nil
	}
	r, err := a.Append(t.Context(), key, nil, producers.AppendOptions{Whole: true, Plan: plan})
	if err != nil || r.First != 4 || r.Last != 5 {
		t.Fatalf("%+v, %v", r, err)
	}
	if newest := asked[len(asked)-1]; newest != 3 || len(asked) < 2 {
		t.Errorf("planned for %v, want also the newest, 3", asked)
	}
	var lines []string
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(3) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(r.Child)+" "+string(r.Payload()))
		}
	}
	if want := `[ {"text":"after 3"}  {"text":"and more"}]`; fmt.Sprint(lines) != want {
		t.Errorf("stored %q, want %s", lines, want)
	}
	if len(stored) != 2 {
		t.Errorf("%d events are said to be stored", len(stored))
	}
	no := errors.New("no")
	for name, c := range map[string]struct {
		opt  producers.AppendOptions
		want error
	}{
		"nothing planned": {producers.AppendOptions{Whole: true, Plan: planOf(nil, nil)}, schema.ErrMalformed},
		"refused":         {producers.AppendOptions{Whole: true, Plan: planOf(nil, no)}, no},
		"keyed":           {producers.AppendOptions{Whole: true, IdempotencyKey: "k", Plan: plan}, schema.ErrMalformed},
		"not whole":       {producers.AppendOptions{Plan: plan}, schema.ErrMalformed},
		"no plan":         {producers.AppendOptions{Whole: true}, schema.ErrMalformed},
		"of two lanes": {producers.AppendOptions{Whole: true,
			Plan: planOf([]schema.Event{text("", "x"), text("kid", "y")}, nil)}, schema.ErrTooLarge},
	} {
		if _, err := a.Append(t.Context(), key, nil, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if head, err := log.Head(t.Context(), key, ""); err != nil || head.Last != 5 {
		t.Errorf("a refusal has stored something: %+v, %v", head, err)
	}
	put(a, text("kid", "six")) // the writer that was refused goes on
}

func planOf(events []schema.Event, err error) func(context.Context, schema.Head, []schema.Event) ([]schema.Event, error) {
	return func(context.Context, schema.Head, []schema.Event) ([]schema.Event, error) { return events, err }
}
