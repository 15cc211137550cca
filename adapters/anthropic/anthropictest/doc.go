// Package anthropictest compares canonical events with recorded message streams of the provider.
//
// # What it is
//
// [Recorded] returns the recordings and what the provider's own client libraries make of them;
// [Check] holds events to that, wherever they have been in between.
//
// # Contract
//
// The recordings lie beside the repository and are never part of it. Missing ones fail the test
// where CI is true and skip it loudly elsewhere.
//
// # Concurrency
//
// Safe for parallel tests.
//
// # What it does not do
//
// It decodes nothing: adapters/anthropic does.
//
// # Where to look next
//
// The tests of adapters/anthropic, and internal/e2e, where the events have been through the log.
package anthropictest
