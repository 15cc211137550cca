package runs_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the run of the tests, whose child is "kid".
var root = schema.RunKey{Tenant: "acme", Run: "root"}

// parents is a catalog that knows one child.
type parents struct{ err error }

func (parents) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return nil, nil
}
func (p parents) Parent(_ context.Context, tenant, child string) (string, error) {
	if p.err != nil || tenant != root.Tenant || child != "kid" {
		return "", p.err
	}
	return root.Run, nil
}

// stored returns runs with the events of root: those of the child stand between its own.
func stored(t *testing.T) (*runs.Runs, *producers.Appender) {
	t.Helper()
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- hub.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	for i, child := range []string{"", "kid", "", "kid", "kid"} {
		e := schema.Event{Type: schema.TypeTextDelta, ChildID: child, Payload: fmt.Appendf(nil, `{"text":"%d"}`, i+1)}
		if i == 2 {
			e.Type, e.Payload = schema.TypeStepBoundary, []byte(`{"step_index":0,"step_kind":"model"}`)
		}
		if _, err := app.Append(t.Context(), root, []schema.Event{e}, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &runs.Runs{Hub: hub, Catalog: parents{}, Slots: runs.NewSlots()}, app
}

// walked returns the numbers that a walk shows.
func walked(t *testing.T, rs *runs.Runs, src runs.Source, after, through schema.Seq) (seqs []schema.Seq) {
	t.Helper()
	for r, err := range rs.Walk(t.Context(), src, after, through) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// A root is walked under the log's numbers, a child under its own, and both within the bounds alone.
func TestWalk(t *testing.T) {
	rs, _ := stored(t)
	kid := runs.Source{Key: root, Child: "kid"}
	for _, c := range []struct {
		src            runs.Source
		after, through schema.Seq
		want           []schema.Seq
	}{
		{runs.Source{Key: root}, 0, 5, []schema.Seq{1, 2, 3, 4, 5}},
		{runs.Source{Key: root}, 1, 3, []schema.Seq{2, 3}},
		{runs.Source{Key: root}, 5, 5, nil},
		{kid, 0, 3, []schema.Seq{1, 2, 3}},
		{kid, 1, 2, []schema.Seq{2}},
		{kid, 3, 9, nil},
	} {
		if got := walked(t, rs, c.src, c.after, c.through); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v behind %d up to %d: %v, want %v", c.src, c.after, c.through, got, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range rs.Walk(ctx, kid, 0, 3) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a walk that nobody waits for: %v", err)
		}
	}
}

// An id names a run, or else a child; another tenant's is unknown, and an index that is away is no answer.
func TestLocate(t *testing.T) {
	rs, _ := stored(t)
	key := func(tenant, run string) schema.RunKey { return schema.RunKey{Tenant: tenant, Run: run} }
	for _, c := range []struct {
		key  schema.RunKey
		src  runs.Source
		last schema.Seq
		want error
	}{
		{root, runs.Source{Key: root}, 5, nil},
		{key("acme", "kid"), runs.Source{Key: root, Child: "kid"}, 3, nil},
		{key("other", "root"), runs.Source{}, 0, fanout.ErrNotFound},
		{key("other", "kid"), runs.Source{}, 0, fanout.ErrNotFound},
		{key("acme", "gone"), runs.Source{}, 0, fanout.ErrNotFound},
	} {
		src, pos, err := rs.WhereIs(t.Context(), c.key)
		if !errors.Is(err, c.want) || src != c.src || pos.Last != c.last {
			t.Errorf("%s: %+v at %d, %v", c.key, src, pos.Last, err)
		}
	}
	rs.Catalog = parents{err: errors.New("away")}
	if _, _, err := rs.Locate(t.Context(), key("acme", "gone")); !errors.Is(err, fanout.ErrUnavailable) {
		t.Errorf("without its index: %v", err)
	}
	if _, err := (&runs.Runs{Hub: rs.Hub}).List(t.Context(), "acme", schema.RunsQuery{}); !errors.Is(err, ends.ErrNoRuns) {
		t.Errorf("a list without an index: %v", err)
	}
}

// A source is opened behind a cursor, and its tail brings exactly the rest. A cursor that the run does not have is
// refused.
func TestOpen(t *testing.T) {
	rs, app := stored(t)
	head, err := rs.Existing(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	child := schema.RunKey{Tenant: "acme", Run: "kid"}
	for _, c := range []struct {
		key  schema.RunKey
		at   dialect.Cursor
		want []schema.Seq
		err  error
	}{
		{root, dialect.Cursor{Seq: 3}, []schema.Seq{4, 5}, nil},
		{root, dialect.Cursor{ID: head.LastID}, nil, nil},
		{root, dialect.Cursor{ByStep: true, Step: 1}, []schema.Seq{4, 5}, nil},
		{root, dialect.Cursor{ByStep: true, Step: 7}, nil, fanout.ErrFuture},
		{root, dialect.Cursor{Seq: 6}, nil, fanout.ErrFuture},
		{root, dialect.Cursor{ID: "01K00000000000000000000000"}, nil, schema.ErrBadCursor},
		{child, dialect.Cursor{Seq: 1}, []schema.Seq{2, 3}, nil},
		{child, dialect.Cursor{Seq: 4}, nil, fanout.ErrFuture},
	} {
		o, err := rs.Open(t.Context(), c.key, c.at, false)
		if !errors.Is(err, c.err) {
			t.Errorf("%s at %+v: %v, want %v", c.key, c.at, err, c.err)
		}
		if err != nil {
			continue
		}
		var got []schema.Seq
		for len(got) < len(c.want) {
			if _, err := o.Tail.Next(t.Context(),
				func(r schema.Record) error { got = append(got, r.Seq); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		o.Tail.Close()
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s at %+v: %v, want %v", c.key, c.at, got, c.want)
		}
	}
	later := schema.RunKey{Tenant: "acme", Run: "later"}
	o, err := rs.Open(t.Context(), later, dialect.Cursor{}, true)
	if err != nil || o.Pos.Last != 0 || !o.Await {
		t.Fatalf("a run that is to come: %+v, %v", o.Pos, err)
	}
	defer o.Tail.Close()
	if _, err := app.Append(t.Context(), later,
		[]schema.Event{{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}},
		producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	if ended, err := o.Tail.Next(t.Context(), func(schema.Record) error { n++; return nil }); err != nil || !ended ||
		n != 1 {
		t.Errorf("it has come: %d events, ended %v, %v", n, ended, err)
	}
}
