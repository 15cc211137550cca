// Package otlp takes traces of OpenTelemetry: POST /v1/traces and the gRPC service TraceService; and the log records of
// their model calls: POST /v1/logs and LogsService.
//
// # What it is
//
// [Ingest] is both. Its Protocol stores each span as an event of the run of its trace before it answers. Its Run
// settles traces: when the root of a trace has come and nothing more for a while, what the spans say is appended as
// messages, calls and children.
//
// # Contract
//
// A span that is answered is stored, and once, however often it is sent. The translation of a trace is stored once, by
// whatever node: a mark is appended to the very head that was read, and the events that follow from it name the mark as
// their cause, so what is missing of them is known to everybody who reads the run. Spans that come after that make
// another round of the same kind.
//
// # Concurrency
//
// An Ingest is safe for concurrent use. Run settles one trace at a time.
//
// # What it does not do
//
// It translates nothing: adapters/otlp does. It takes no metrics, and no other logs.
//
// # Where to look next
//
// docs/otlp.md for users; docs/decisions/0071-spans-become-runs.md for why it is so.
package otlp
