// Package natsjs is the persister's queue on JetStream.
//
// # What it is
//
// A [Queue] is the durable pull consumer "persist" on the stream of one partition. [Queues] makes
// one for each partition of the log. A [Roster] shares the partitions among processes.
//
// # Contract
//
// The consumer is AckExplicit: every message is confirmed by name. AckAll would be cheaper by one
// small publish a message, but it means "this one and all before it", and with a second fetcher,
// which no configuration of ours can rule out (a second process by mistake, a rolling update, a
// process that was paused for longer than the ack wait), that would confirm messages which the
// other is still writing: they would be lost when it dies. A pinned priority group does not help: a
// client that was unpinned can still acknowledge. BenchmarkFetchAck measures what naming each costs:
// over 100,000 messages a second are fetched and confirmed, and a message is a pack of many events.
//
// A confirmation is waited for once a batch, with the last message: acknowledgements of one
// connection are processed in order, so its answer stands for those before it. A message that is
// neither confirmed nor held within Config.AckWait is handed out again. That wait is how long the rows of
// a killed process stay away, so it is short.
//
// Lag counts what the stream has dropped unconfirmed: JetStream's limits win over a consumer, and its
// floor moves past what is gone without a word. What is purged at the front of a stream before it was
// confirmed is counted too; what a process held that died is not, when no other ran until it was gone.
//
// A Roster is a bucket of keys that expire: one for each member, one with the holder of each partition,
// taken and renewed by compare-and-set. While the bucket is away, everybody keeps what they hold; after
// RosterConfig.Alone, everybody fetches everything. Partitions are fetched by two for moments, as when a
// process was paused for longer than its lease. Nothing depends on it.
//
// # Concurrency
//
// A Queue is safe for concurrent use, also by several processes on one log: each message is handed
// to one of them at a time, with a Roster or without. Roster.Run is the only goroutine here.
//
// # What it does not do
//
// It does not read packs: a message is bytes here. It does not declare streams.
//
// # Where to look next
//
// internal/natskit for the streams, persister for what is done with the messages.
package natsjs
