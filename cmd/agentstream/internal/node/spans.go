package node

import (
	"net/http"
	"strings"

	"agentstream/edge"
	"agentstream/internal/spans"
)

// requestSpan is the span of a request to the edge.
type requestSpan struct{ *spans.Span }

// Close implements edge.RequestSpan.
func (s requestSpan) Close(e edge.RequestEnd) {
	method, _, _ := strings.Cut(e.Route, " ")
	s.Span.Close(spans.End{Method: method, Route: e.Route, Status: e.Status, RequestID: e.ID, Tenant: e.Tenant, Run: e.Run,
		Failed: e.Status >= http.StatusInternalServerError})
}

// openSpans returns what opens the spans of requests to the edge; nil: there are none.
func openSpans(t *spans.Tracer) func(parent string) edge.RequestSpan {
	if t == nil {
		return nil
	}
	return func(parent string) edge.RequestSpan {
		s := t.Open(parent)
		if s == nil {
			return nil
		}
		return requestSpan{s}
	}
}
