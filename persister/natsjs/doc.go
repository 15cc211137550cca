// Package natsjs is the persister's queue on JetStream.
//
// # What it is
//
// A [Queue] is the durable pull consumer "persist" on the stream of one partition. [Queues] makes
// one for each partition of the log.
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
// not confirmed within Config.AckWait is handed out again. That wait is how long the rows of a killed
// process stay away, so it is short; a batch that takes longer to write is handed out twice, which
// costs work and changes nothing.
//
// # Concurrency
//
// A Queue is safe for concurrent use, also by several processes on one log: each message is handed
// to one of them at a time. They need no election; it would only save the doubled effort.
//
// # What it does not do
//
// It does not read packs: a message is bytes here. It does not declare streams.
//
// # Where to look next
//
// internal/natskit for the streams, persister for what is done with the messages.
package natsjs
