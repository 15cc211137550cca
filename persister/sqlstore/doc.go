// Package sqlstore is what the stores in SQL databases have in common: the reads, the changes of a few rows, and the
// frame of an append.
//
// # What it is
//
// A [Store] runs its statements on a [DB], which a package per database provides: persister/postgres and
// persister/sqlite embed a Store each. The tables have the same names and columns in both. A [Dialect] names what
// differs in a statement.
//
// # Contract
//
// The statements keep to what both databases understand: parameters are $1, $2, …, and casts are written out. Times are
// scanned as UTC. Errors begin with the dialect's name.
//
// # Concurrency
//
// A Store is safe for concurrent use when its DB is.
//
// # What it does not do
//
// It writes and removes no rows of events itself: databases differ there in more than words.
//
// # Where to look next
//
// persister/postgres and persister/sqlite for appends and removal; persister/persistertest for what a store promises.
package sqlstore
