// Package persister moves packs from the log into a store: fetch, one transaction, acknowledge.
//
// # What it is
//
// A [Persister] runs one pipeline per [Queue] (one partition of the log each). A pipeline fetches
// messages, takes their packs apart into rows, writes the rows with a [Store] in one transaction and
// confirms the messages to the queue. The three steps overlap; between two of them one batch may wait.
// Transactions grow while they are quick and more is waiting (Config.Target). [Walk] is the way back: it makes packs of stored rows, for
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
// be stored at all is set aside with its original bytes, alone; everything around it is stored. [Redrive]
// takes what was set aside the same way once more.
// Batches of a queue are stored in the order of the log.
//
// What is held of all queues is bounded by Config.HeldBytes. While the store is away the persister keeps
// trying with jittered back-off and confirms nothing; after Config.Hold it gives back what it holds, and
// fetches again when the store answers. [Persister.Status] and [Hooks] say so. They also say how long it
// takes until the log drops what is not stored, and how much it has dropped: loss is never silent.
//
// # Concurrency
//
// A Persister starts the steps of one pipeline and one lag watch per queue, all inside Run. Several
// processes may run on the same log: the queue hands each message to one of them at a time, and a
// message that is handed out twice is harmless. Then packs of one run may be committed out of order;
// readers stop at the hole until it is filled. Queues that are [Shared] are served by one process at a
// time, which is for order and cost, not for safety.
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
