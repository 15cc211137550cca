// Package fanouttest is what every log must do for its readers.
//
// # What it is
//
// [Run] is the conformance suite of fanout.History and fanout.Tail, alone and behind a Hub. The
// in-memory log and the one in JetStream both pass it.
//
// # Contract
//
// A [Backend] is fresh for each test of the suite.
//
// # Concurrency
//
// The suite runs its tests one after the other; each may use many goroutines.
//
// # What it does not do
//
// It breaks nothing: lost copies and lost answers are tested in fanout on a log that loses them.
//
// # Where to look next
//
// fanout/source.go for the interfaces.
package fanouttest
