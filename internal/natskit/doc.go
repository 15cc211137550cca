// Package natskit is what the NATS-facing packages share: the layout of the streams, and reads that
// the client library does not have in the form the log needs.
//
// # What it is
//
// [Declare] creates or adjusts one stream per partition, with republishing and direct get, and the buckets that
// edges share. [LastFromLeader] and [NextFromLeader] read single messages from a stream's leader, [ReadPage]
// and [ReadBatch] read a page by direct get. A [Bucket] does once what is asked of it, whichever answers are lost.
// [Blobs] keeps large content of runs, in pieces.
// [Serve] runs an embedded server, and [Host] one that can be begun anew below its connections.
//
// # Contract
//
// The number of partitions is fixed by the first Declare of a deployment; another number is
// refused. ReadBatch ends without an error only when the server has reported that the batch is
// complete: a page that was cut short is an error, never a short page. All but ReadBatch are asked again in
// pieces of a [Try] at most ([Repeat]) until the caller's context ends.
//
// # Concurrency
//
// All functions are safe for concurrent use. Nothing here keeps state or starts a goroutine, except
// the embedded server, which belongs to its caller.
//
// # What it does not do
//
// It does not know packs or events; producers/natsjs, fanout/natsjs and persister/natsjs do.
//
// # Where to look next
//
// schema/subject.go for the subjects, fanout/natsjs for the reads in use.
package natskit
