// Package spans makes spans of requests, messages and batches with OpenTelemetry's SDK, and hands them to a collector.
//
// # What it is
//
// A [Tracer] opens a [Span] for a request that is sampled: as its caller's traceparent says, or one in so many where
// there is none. [Tracer.OpenAnswer] is the same for a message, and [Tracer.Add] for a batch that is over. [Tracer.Run]
// sends spans that were closed.
//
// # Contract
//
// A request never waits for a collector: spans that find no room are dropped and counted. What is not sampled keeps no
// memory. No payload, credential or query is in a span.
//
// # Concurrency
//
// A Tracer is safe for concurrent use, a Span is one request's. New starts nothing; Run returns when all that it has
// started has ended.
//
// # What it does not do
//
// It does not know runs: their spans are a function of the log, see tap/otlp.
//
// # Where to look next
//
// docs/observability.md, and edge's Config.Trace.
package spans
