package otlp

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// tracedBy returns a scenario whose events came with traceparents: the nth of them, "" for none.
func tracedBy(s schematest.Scenario, parent func(n int, e *schema.Event) string) schematest.Scenario {
	events := make([]schema.Event, len(s.Events))
	for n, e := range s.Events {
		if p := parent(n, &e); p != "" {
			e.Extra = fmt.Appendf(nil, `"trace":%q`, p)
		}
		events[n] = e
	}
	s.Events = events
	return s
}

const (
	hexTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	hexSpan  = "00f067aa0ba902b7"
)

// TestRunOfARequest: a run that a sampled request has begun is a part of the request's trace, with all that it does. One
// of a request that nobody records has a trace of its own, with a link; so has every one where that is wanted. What is
// no traceparent, or names a span of the run's own, means nothing.
func TestRunOfARequest(t *testing.T) {
	plain := langgraphRun(t)
	ownTrace := hex.EncodeToString(traceID(acme, 0))
	ownSpan := hex.EncodeToString(spanID("run", acme, 0, 0))
	for name, tt := range map[string]struct {
		parent string
		links  bool
		child  bool
		linked bool
	}{
		"sampled":         {parent: "00-" + hexTrace + "-" + hexSpan + "-01", child: true},
		"sampled, random": {parent: "00-" + hexTrace + "-" + hexSpan + "-03", child: true},
		"not sampled":     {parent: "00-" + hexTrace + "-" + hexSpan + "-00", linked: true},
		"links alone":     {parent: "00-" + hexTrace + "-" + hexSpan + "-01", links: true, linked: true},
		"own trace":       {parent: "00-" + ownTrace + "-" + hexSpan + "-01"},
		"own span":        {parent: "00-" + hexTrace + "-" + ownSpan + "-01"},
		"none":            {},
		"bad":             {parent: "00-" + strings.ToUpper(hexTrace) + "-" + hexSpan + "-01"},
		"hostile":         {parent: strings.Repeat("a-", 1<<16)},
	} {
		events := eventsOf(t, acme, tracedBy(plain, func(n int, _ *schema.Event) string {
			if n == 0 || name == "sampled" {
				return tt.parent
			}
			return ""
		}))
		o := Options{Pending: true, Links: tt.links}
		got, want := trace(t, o, events), trace(t, o, eventsOf(t, acme, plain))
		if len(got.spans) != len(want.spans) {
			t.Errorf("%s: %d spans, want %d", name, len(got.spans), len(want.spans))
		}
		wantTrace := ownTrace
		if tt.child {
			wantTrace = hexTrace
		}
		ids := map[string]bool{}
		for _, s := range want.spans {
			ids[string(s.SpanId)] = true
		}
		var root *tracepb.Span
		for _, s := range got.spans {
			if hex.EncodeToString(s.TraceId) != wantTrace || !ids[string(s.SpanId)] {
				t.Errorf("%s: %s is in trace %x", name, s.Name, s.TraceId)
			}
			if hex.EncodeToString(s.SpanId) == ownSpan {
				root = s
			}
		}
		if parent := hex.EncodeToString(root.ParentSpanId); (parent == hexSpan) != tt.child || !tt.child && parent != "" {
			t.Errorf("%s: the run is below %q", name, parent)
		}
		if tt.child != (root.Flags == remote) || tt.linked != (len(root.Links) == 1) {
			t.Errorf("%s: flags %x, links %v", name, root.Flags, root.Links)
		}
		for cut := 1; cut < len(events); cut += 7 { // another process goes on
			again := newStore()
			deliver(t, New(Config{Options: o, Sender: again, History: history(events)}), events[:cut])
			deliver(t, New(Config{Options: o, Sender: again, History: history(events)}), events[cut:])
			if d := again.difference(got); d != "" {
				t.Fatalf("%s, cut at %d: %s", name, cut, d)
			}
		}
	}
}

// TestFollowUpOfARequest: what follows up on an end is a part of the request that brought it, and linked to the run.
func TestFollowUpOfARequest(t *testing.T) {
	var s schematest.Scenario
	for _, one := range schematest.All() {
		if one.Name == "follow-up" {
			s = one
		}
	}
	got := trace(t, Options{}, eventsOf(t, acme, tracedBy(s, func(n int, e *schema.Event) string {
		return "00-" + fmt.Sprintf("%032x", n+1) + "-" + hexSpan + "-01"
	})))
	var roots []*tracepb.Span
	for _, span := range got.spans {
		if hex.EncodeToString(span.ParentSpanId) == hexSpan {
			roots = append(roots, span)
		}
	}
	if len(roots) != 2 {
		t.Fatalf("%d roots", len(roots))
	}
	if string(roots[0].TraceId) == string(roots[1].TraceId) || len(roots[0].Links)+len(roots[1].Links) != 1 {
		t.Errorf("%v", roots)
	}
}
