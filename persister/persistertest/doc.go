// Package persistertest has the suite that every store passes, and what tests need to fill a store.
//
// # What it is
//
// The suite is in the tests of this package: every store passes what persister.Store and the reads promise. [Writer]
// returns packs as a log's writer does, [Put] and [FillRuns] store them, and [Memory] is a store in memory, for tests
// of the persister and of what reads runs.
//
// # Contract
//
// A store that passes can be used by a persister and for replay.
//
// # Concurrency
//
// A Memory is safe for concurrent use. A Writer belongs to one goroutine.
//
// # What it does not do
//
// What only one store has is tested in its own package.
//
// # Where to look next
//
// persister.Store for the contract; TestConformance for the suite.
package persistertest
