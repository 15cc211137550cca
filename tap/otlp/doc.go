// Package otlp turns runs into traces of OpenTelemetry, by the semantic conventions for generative AI.
//
// # What it is
//
// A tracer reads the events of one run, through package assemble, and makes spans. An Exporter keeps the tracers of
// the runs that are going on and hands their spans to a Sender. It is the inside of a tap's sink.
//
//	tap.Event ─▶ Exporter ─▶ tracer ─▶ assemble.Run
//	                │  └───── History, for what a tracer has not seen
//	                └─▶ Sender ─▶ collector
//
// # Contract
//
// The same events of a run make the same spans: ids, times, attributes. Ids are hashes of tenant, run and seq. So an
// event that comes again makes no other span, and a process that goes on in the middle of a run reads its beginning
// again first. A span has its final form once, when it ends. When it begins, a marker of no length is made, which is
// its child and has an id of its own. A run from its beginning to its end is one trace; what follows up on it is
// another one with a link.
//
// # Concurrency
//
// An Exporter is safe for concurrent use, as long as the events of a run come one after the other. A tracer is not.
//
// # What it does not do
//
// It does not know HTTP, gRPC, NATS or a database, and does not retry: the tap does.
//
// # Where to look next
//
// tracer.go for what becomes a span, attributes.go for what it says, exporter.go for batches and restarts;
// docs/decisions/0070-spans-of-a-tap.md has the reasons.
package otlp
