// Package sqlite keeps runs in one SQLite file: the embedded default.
//
// # What it is
//
// A [Store] is a persister.Store on a pure Go SQLite, with the same tables, the same contract and the same reads as
// package postgres. [Migrate] creates and changes the tables.
//
// # Contract
//
// When Transfer returns, the commit is on disk (WAL, synchronous FULL). line is the event as it arrived; payload is
// computed from it by queries. There are no partitions: the key is tenant, run and seq. A run that arrives with
// another day than the stored one is a conflict here too.
//
// # Concurrency
//
// A Store is safe for concurrent use: one connection writes, and a pool reads, which the writer never blocks. Other
// processes may use the file at the same time; writers wait for each other.
//
// # What it does not do
//
// It does not decide what expires: package retention does. It does not retry beyond the busy time-out: the persister
// does.
//
// # Where to look next
//
// persister/postgres for the store of larger deployments, persistertest for what a store promises.
package sqlite
