// Package natsjs is the persister's queue on JetStream, and compares and completes a log.
//
// # What it is
//
// A [Queue] reads the stream of one partition after the stored offset. [Queues] returns one for each partition of the
// log. [Compare] reports whether a partition has all messages that are stored, and a [Refill] writes back what it
// lacks. A [Purger] removes runs. [ExamineStreams] and [ExamineRuns] compare a log with its store.
//
// # Contract
//
// Nothing is acknowledged to the log, and the log does not know its readers: each Seek creates a consumer in memory,
// without acknowledgements. When a message is lost on its way, the consumer's count shows it, and the message is read
// again after a Seek. Any number of processes may read one partition.
//
// A stream is behind when it ends before the stored position, when the message at that position has another time, or
// when the stream was created at another time and is not empty. An empty stream that was created again is not behind:
// writers continue runs from the archive. A Refill compares the runs that were stored since the log's newest message,
// and appends their missing lines by compare-and-set, before the offset is moved back. So a log that passes Compare
// is complete. Messages that writers appended meanwhile without Compare are read again: they are after the new
// offset.
//
// Lag counts the messages that the stream has dropped before they were read. Messages purged at the front of a stream
// before they were read count too.
//
// # Concurrency
//
// Seek and Fetch are for one goroutine at a time; everything else is safe for concurrent use. The package starts no
// goroutines.
//
// # What it does not do
//
// A queue does not decode packs: a message is bytes. It does not declare streams.
//
// # Where to look next
//
// internal/natskit for the streams, persister for the use of the messages.
package natsjs
