// Package persister moves packs from the log into a store: fetch, then one transaction for the rows and the offset.
//
// # What it is
//
// A [Persister] runs one pipeline per [Queue] (one partition of the log each). A pipeline reads its partition from
// the [Offset] that the store keeps, takes packs apart into rows, and writes rows and the new offset with a
// [Store] in one transaction. The two steps overlap; between them one batch may wait. Transactions grow while
// they are quick and more is waiting (Config.Target). [Walk] is the way back: it makes packs of stored rows, for
// replay of what the log no longer holds.
//
// What comes alone is stored at once. While events come in small numbers, a pipeline fetches them
// at most once in Config.Linger: they wait in the log meanwhile, and nothing is held for them. When
// Run is told to stop in that pause, the pipeline fetches once more.
//
// # Contract
//
// The offset moves by compare-and-set in the transaction that writes the rows. So each message is stored once,
// whoever reads it and however often: a transaction whose offset has moved meanwhile is refused as a whole
// ([ErrOvertaken]), and its pipeline goes on from where the other one has come. Nothing is confirmed to the log.
// Rows are keyed by tenant, run and seq besides: a row that comes again with another content is never written over
// the first; it is set aside as a dead letter with [ReasonConflict]. What cannot be stored at all is set aside with
// its original bytes, alone; everything around it is stored. [Redrive] takes what was set aside the same way once
// more. Batches of a queue are stored in the order of the log.
//
// A log that ends before the offset, or is another one, has lost what was stored of it ([ErrBehind]). Then
// Config.Refill writes back what the log lacks, before anything else of that partition is stored.
//
// What is held of all queues is bounded by Config.HeldBytes. While the store is away the persister keeps
// trying with jittered back-off; after Config.Hold it lets go what it holds, which is read again. [Persister.Status] and [Hooks] say so. They also say how long it
// takes until the log drops what is not stored, and how much it has dropped: loss is never silent.
//
// # Concurrency
//
// A Persister starts the steps of one pipeline and one lag watch per queue, and one look at the offsets, all inside
// Run. Several processes may run on the same log, without an election: the offsets say who stored what last, and
// each leaves the others' partitions alone while these move. A process that has two fewer than another takes one.
//
// # What it does not do
//
// It does not create tables (the store's Migrate does), expire runs, or know NATS or SQL.
//
// # Where to look next
//
// natsjs is the queue and the refill, postgres and sqlite are the stores, persistertest is the suite that every
// store passes.
package persister
