// Package transcripttest compares canonical events with recorded transcripts.
//
// # What it is
//
// [Recorded] returns the recordings with their formats; [Check] holds events to what is expected of one,
// wherever they have been in between.
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
// It decodes nothing: adapters/transcript does.
//
// # Where to look next
//
// The tests of adapters/transcript.
package transcripttest
