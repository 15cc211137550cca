// Package persister moves packs from the log into a store: fetch, then one transaction for the rows and the offset.
//
// # What it is
//
// A [Persister] runs one pipeline per [Queue] (one partition of the log each). A pipeline reads its partition from the
// [Offset] in the store, decodes packs into rows, and writes the rows and the new offset with a [Store] in one
// transaction. The two steps overlap; one batch may wait between them. Transactions grow while they are fast and more
// rows are waiting (Config.Target). [Walk] is the opposite direction: it makes packs of stored rows, for replay of
// events that the log no longer holds.
//
// A single message is stored at once. While messages arrive in small numbers, a pipeline fetches at most once in
// Config.Linger, or in twice that; meanwhile they wait in the log. When the context of Run ends in that pause, the
// pipeline fetches once more.
//
// # Contract
//
// The offset moves by compare-and-set in the transaction that writes the rows. So each message is stored once, also
// when several processes read it. A transaction whose offset has moved meanwhile fails ([ErrOvertaken]), and its
// pipeline continues from the new offset. Nothing is acknowledged to the log. Rows have the key tenant, run and seq. A
// row that arrives again with another content never overwrites the first: it becomes a dead letter with
// [ReasonConflict]. A line that cannot be stored becomes a [DeadLetter] with its original bytes; the lines around it
// are stored. Batches of a queue are stored in the order of the log.
//
// A log that ends before the offset, or is another log, has lost messages that are stored ([ErrBehind]). Then
// Config.Refill writes back what the log lacks, before anything else of that partition is stored.
//
// Config.HeldBytes bounds the memory for messages of all queues. While the store is away the persister keeps trying
// with jittered back-off. After Config.Hold it releases the messages, and reads them again later. [Persister.Status]
// and [Hooks] report this. They also report the time until the log drops messages that are not stored, and the number
// that it has dropped: no loss is silent.
//
// # Concurrency
//
// Run starts three goroutines per queue, for the two steps and the lag, and one that reads the offsets. Several
// processes may run on the same log, without an election: a process does not store a partition whose offset another
// process moves. A process that has two fewer partitions than another takes one of them.
//
// # What it does not do
//
// It does not create tables (the store's Migrate does), expire runs, or know NATS or SQL.
//
// # Where to look next
//
// natsjs is the queue and the refill, postgres and sqlite are the stores, deadletter finds and retries dead letters,
// persistertest is the suite that every store passes.
package persister
