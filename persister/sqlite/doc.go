// Package sqlite keeps runs in one SQLite file: the embedded default.
//
// # What it is
//
// A [Store] is a persister.Store on a pure Go SQLite, with the same tables, the same contract and
// the same reads as the PostgreSQL one. [Migrate] creates and updates the tables.
//
// # Contract
//
// A commit is on the disk when Transfer returns (WAL, synchronous FULL). line is the event as it
// came; payload is computed from it when a query asks. There are no partitions: the key is tenant,
// run and seq, and a run that comes with another day than it is stored under is a conflict here too.
//
// # Concurrency
//
// A Store is safe for concurrent use: one connection writes, a pool reads and is never blocked by
// the writer. Other processes may use the file at the same time and wait for each other.
//
// # What it does not do
//
// It expires nothing, and it does not retry beyond the busy time-out: the persister does.
//
// # Where to look next
//
// persister/postgres for the real one, persistertest for what is promised.
package sqlite
