// Package providertest is what the tests of all adapters share.
//
// # What it is
//
// [Recorded] returns recorded streams and what is expected of them, [Digest] stands for their long texts.
// [Decode] returns the events of a body; [CheckEvents], [CheckFraming] and [CheckPieces] hold an adapter
// to what all of them promise, whatever the provider, [CheckNumbered] to what some promise on top.
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
// It knows no provider: what a recording results in is held by adapters/anthropic/anthropictest,
// adapters/openai/openaitest, adapters/gemini/geminitest and adapters/transcript/transcripttest.
//
// # Where to look next
//
// The tests of adapters/anthropic use all of it.
package providertest
