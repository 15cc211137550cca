// Package otlp turns spans of OpenTelemetry into the events of a run.
//
// # What it is
//
// [Keep] makes the payload of one event of a span, with its bounds. [Parse] reads that payload again. A [Translator]
// takes the spans of one trace and returns the events of its run: model calls with their messages, calls of tools, and
// children for agents.
//
// # Contract
//
// The events depend on the spans alone, not on the order in which they came. A span of a convention that is not known
// makes no event; its own event keeps it. An attribute that is too large is cut, and named in "omitted".
//
// # Concurrency
//
// A Translator belongs to one goroutine at a time. It starts none.
//
// # What it does not do
//
// It stores nothing, and does not know when a trace is complete: protocols/otlp does.
//
// # Where to look next
//
// translate.go puts the spans in order, call.go is a model call whatever its convention, and each family of conventions
// has a file. docs/otlp.md is the page for users.
package otlp
