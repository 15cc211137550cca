package otlp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"agentstream/schema"
	"agentstream/schema/schematest"
	"agentstream/tap"
)

var acme = schema.RunKey{Tenant: "acme", Run: "run_1"}

// store is a collector that keeps what it gets by trace and span id.
type store struct {
	mu      sync.Mutex
	spans   map[string]*tracepb.Span
	order   []string
	fault   error // two spans of one id that differ
	metrics []*metricspb.MetricsData
	deaf    error                           // for metrics
	fail    func() (keep bool, fails error) // nil: everything is kept
}

func newStore() *store { return &store{spans: map[string]*tracepb.Span{}} }

func (s *store) Send(_ context.Context, data *tracepb.TracesData) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, err := true, error(nil)
	if s.fail != nil {
		keep, err = s.fail()
	}
	if !keep {
		return err
	}
	b, bad := proto.Marshal(data) // as on the wire
	var back tracepb.TracesData
	bad = errors.Join(bad, proto.Unmarshal(b, &back))
	if bad != nil {
		return bad
	}
	for _, span := range back.ResourceSpans[0].ScopeSpans[0].Spans {
		id := string(span.TraceId) + string(span.SpanId)
		if have := s.spans[id]; have == nil {
			s.spans[id] = span
			s.order = append(s.order, id)
		} else if !proto.Equal(have, span) {
			s.fault = fmt.Errorf("two of one id:\n%v\n%v", have, span)
		}
	}
	return err
}

func (s *store) SendMetrics(_ context.Context, data *metricspb.MetricsData) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics = append(s.metrics, data)
	return s.deaf
}

func (s *store) Close() error { return nil }

// orphans returns spans whose parent is nowhere, and those of a trace beside its root.
func (s *store) orphans() (all []*tracepb.Span) {
	roots := map[string]int{}
	for _, id := range s.order {
		span := s.spans[id]
		if len(span.ParentSpanId) == 0 {
			roots[string(span.TraceId)]++
			if roots[string(span.TraceId)] > 1 {
				all = append(all, span)
			}
		} else if s.spans[string(span.TraceId)+string(span.ParentSpanId)] == nil {
			all = append(all, span)
		}
	}
	return all
}

// difference returns what two stores have not in common; "" when they are the same.
func (s *store) difference(o *store) string {
	if s.fault != nil {
		return s.fault.Error()
	}
	for id, span := range s.spans {
		if other := o.spans[id]; other == nil || !proto.Equal(span, other) {
			return fmt.Sprintf("%v\nis other than\n%v", span, other)
		}
	}
	for id, other := range o.spans {
		if s.spans[id] == nil {
			return fmt.Sprintf("only one has %v", other)
		}
	}
	return ""
}

// eventsOf returns a scenario as a tap delivers it.
func eventsOf(tb testing.TB, key schema.RunKey, s schematest.Scenario) (events []tap.Event) {
	tb.Helper()
	for _, e := range schematest.NumberEvents(key.Run, s) {
		line := e.AppendLine(nil)
		r, err := schema.ScanLine(line)
		if err != nil {
			tb.Fatal(err)
		}
		at, ok := r.Time()
		if !ok {
			tb.Fatalf("no time in %s", line)
		}
		events = append(events, tap.Event{Run: key, Child: e.ChildID, Seq: e.Seq, ID: e.ID, Type: e.Type, TS: at,
			Line: line})
	}
	return events
}

// history gives events back as packs of one.
type history []tap.Event

func (h history) Packs(_ context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for _, e := range h {
			if e.Run != key || e.Seq <= after || e.Seq > through {
				continue
			}
			body := append(slices.Clone(e.Line), '\n')
			if !yield(schema.Pack{Key: key, Child: e.Child, First: e.Seq, Count: 1, Body: body}, nil) {
				return
			}
		}
	}
}

// trace returns what a collector has of events that come without a fault.
func trace(tb testing.TB, o Options, events []tap.Event) *store {
	tb.Helper()
	s := newStore()
	if refused, err := New(Config{Options: o, Sender: s}).Write(tb.Context(), events); err != nil || len(refused) > 0 {
		tb.Fatal(refused, err)
	}
	return s
}

// picky never accepts a request that has spans of a name.
type picky struct {
	*store
	name string
}

func (p *picky) Send(ctx context.Context, data *tracepb.TracesData) error {
	for _, span := range data.ResourceSpans[0].ScopeSpans[0].Spans {
		if span.Name == p.name {
			return ErrPermanent
		}
	}
	return p.store.Send(ctx, data)
}
