// Package persistertest is the suite that every store passes.
//
// # What it is
//
// [Run] takes a function that opens an empty store and checks everything that persister.Store and
// the reads promise. [Writer] returns packs as a log's writer does. [Memory] is a store in
// memory, for tests of the persister itself.
//
// # Contract
//
// A store that passes can be used by a persister and for replay.
//
// # Concurrency
//
// Run uses the store from several goroutines. A Writer belongs to one.
//
// # What it does not do
//
// It does not test outages: each store's own tests do, with a real database.
//
// # Where to look next
//
// persister.Store for the contract.
package persistertest
