// Package persister moves packs from the log into a store: fetch, one transaction, acknowledge.
//
// # What it is
//
// A [Persister] runs one pipeline per [Queue] (one partition of the log each). A pipeline fetches
// messages, takes their packs apart into rows, writes the rows with a [Store] in one transaction and
// confirms the messages to the queue. [Walk] is the way back: it makes packs of stored rows, for
// replay of what the log no longer holds.
//
// What comes alone is stored at once. While events come in small numbers, a pipeline fetches them
// at most once in Config.Linger: they wait in the log meanwhile, and nothing is held for them. When
// Run is told to stop in that pause, the pipeline fetches once more.
//
// # Contract
//
// A message is confirmed only after the transaction that holds its rows has been committed, so what
// the log has acknowledged is never lost between log and store. Rows are keyed by tenant, run and
// seq: a message that comes again changes nothing. A row that comes again with another content is
// never written over the first: it is set aside as a dead letter with [ReasonConflict]. What cannot
// be stored at all is set aside with its original bytes, alone; everything around it is stored.
// While the store is away the persister holds one batch per partition, keeps trying with jittered
// back-off, and confirms nothing; [Persister.Status] and [Hooks] say so.
//
// # Concurrency
//
// A Persister starts one pipeline and one lag watch per queue, all inside Run. Several processes may
// run on the same log: the queue hands each message to one of them at a time, and a message that is
// handed out twice is harmless. Then packs of one run may be committed out of order; readers stop
// at the hole until it is filled.
//
// # What it does not do
//
// It does not create tables (the store's Migrate does), expire runs, or know NATS or SQL.
//
// # Where to look next
//
// natsjs is the queue, postgres and sqlite are the stores, persistertest is the suite that every
// store passes.
package persister
