// Package otelcheck holds the traces of a tap to a real OpenTelemetry collector.
//
// # What it is
//
// The collector's own modules, as they are in its binary, run in the test's process: the OTLP receiver over gRPC and
// HTTP, and the parser of configurations, which reads examples/otel/collector.yaml. It is a module of its own, so that
// the program depends on none of that.
//
// # Contract
//
// A run in a real log, a tap that is stopped and started in its middle, and the collector: one trace, no span twice in
// different forms, no span without its parent.
//
// # Concurrency
//
// None.
//
// # What it does not do
//
// It knows no backend behind a collector.
//
// # Where to look next
//
// docs/observability.md; tap/otlp for what becomes a span.
package otelcheck
