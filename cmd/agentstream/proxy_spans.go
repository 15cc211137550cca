package main

import (
	"agentstream/adapters/proxy"
	"agentstream/internal/spans"
)

// proxySpan is the span of a request through the proxy.
type proxySpan struct{ *spans.Span }

// Close implements proxy.RequestSpan.
func (s proxySpan) Close(d proxy.Done) {
	s.Span.Close(spans.End{Route: "proxy " + d.Upstream,
		Failed: d.Outcome == proxy.OutcomeUnreachable || d.Outcome == proxy.OutcomeBroken})
}

// openProxySpans returns what opens the spans of requests through the proxy; nil: there are none.
func openProxySpans(t *spans.Tracer) func(parent string) proxy.RequestSpan {
	if t == nil {
		return nil
	}
	return func(parent string) proxy.RequestSpan {
		s := t.Open(parent)
		if s == nil {
			return nil
		}
		return proxySpan{s}
	}
}
