// Package natsjs is the persister's queue on JetStream, and what compares and completes a log.
//
// # What it is
//
// A [Queue] reads the stream of one partition behind the offset that the store has. [Queues] makes
// one for each partition of the log. [Compare] says whether a partition has all that is stored of it, and a
// [Refill] writes back what it lacks. A [Purger] removes runs.
//
// # Contract
//
// Nothing is confirmed to the log, and the log knows nothing of who reads it: a consumer is kept in memory, is made
// anew by each Seek, and asks for no acknowledgement. A message that is lost on its way is noticed by the
// consumer's count, and read again after a Seek. Any number of processes may read one partition.
//
// A stream is behind what is stored of it when it ends before the stored position, when the message there is
// another one by its time, or when it was made at another time and is not empty. An empty stream that was
// made anew is not: runs go on from what the archive knows of them. To refill, runs that were stored
// since the time of the cut are compared, and their missing lines appended by compare-and-set, before the offset is
// moved back. So whoever finds the log whole by Compare finds it complete. What writers that compare nothing appended
// meanwhile is read again: it is younger than what the offset is moved back to.
//
// Lag counts what the stream has dropped unread. What is purged at the front of a stream before it was read is
// counted too.
//
// # Concurrency
//
// Seek and Fetch are for one goroutine at a time; everything else is safe for concurrent use. Nothing here starts a
// goroutine.
//
// # What it does not do
//
// A queue does not read packs: a message is bytes there. It does not declare streams.
//
// # Where to look next
//
// internal/natskit for the streams, persister for what is done with the messages.
package natsjs
