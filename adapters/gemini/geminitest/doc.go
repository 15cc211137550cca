// Package geminitest compares canonical events with recorded answers of the Gemini API.
//
// # What it is
//
// [Recorded] returns the recordings and what is expected of them; [Check] holds events to that, wherever
// they have been in between.
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
// It decodes nothing: adapters/gemini does.
//
// # Where to look next
//
// The tests of adapters/gemini, and adapters/transcript/transcripttest, whose transcripts hold such
// answers.
package geminitest
