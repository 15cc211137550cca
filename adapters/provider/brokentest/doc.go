// Package brokentest rewrites streams of providers as broken translators do, and compares what is recorded of them.
//
// # What it is
//
// [Read] makes a [Stream] of a recorded body, [Rewritings] is the list of what is done to streams, one function each,
// and [Stream.Body] writes one again. [Of] is what a reader of the canonical events knows, and [Outcome.Diff] compares
// two of them.
//
// # Contract
//
// A rewriting says in which aspects what is recorded may differ from the unbroken stream; 0 is none. The table of
// docs/producers.md names every rewriting. The same seed gives the same stream.
//
// # Concurrency
//
// A Stream belongs to one goroutine. The rest may be used by several.
//
// # What it does not do
//
// It decodes nothing, and holds no recordings: providertest reads those.
//
// # Where to look next
//
// The tests of this package, which run the rewritings singly and in pairs.
package brokentest
