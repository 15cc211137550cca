// Package trace reads and writes trace contexts of the W3C (https://www.w3.org/TR/trace-context/).
//
// # What it is
//
// [Parse] reads a traceparent, [Of] the one of a request. An event keeps that with which it came in the field [Field]
// of its envelope.
//
// # Contract
//
// Whatever is no traceparent by the letter of the W3C is none: nothing is refused because of it. What is kept is of
// version 00. A tracestate is not kept: it is another system's, and nothing here reads it.
//
// # Concurrency
//
// Values do not change. Everything is safe for concurrent use.
//
// # What it does not do
//
// It makes no spans; see edge/spans for those of requests, and tap/otlp for those of runs.
//
// # Where to look next
//
// schema's Event.WithTrace, and docs/observability.md.
package trace
