// Package natskit is what the NATS-facing packages share: the layout of the streams, and reads that
// the client library does not have in the form the log needs.
//
// # What it is
//
// [Declare] creates or adjusts one stream per partition, with republishing and direct get.
// [LastFromLeader] and [NextFromLeader] read single messages from a stream's leader, [ReadBatch]
// reads a page by direct get. [Serve] runs an embedded server.
//
// # Contract
//
// The number of partitions is fixed by the first Declare of a deployment; another number is
// refused. ReadBatch ends without an error only when the server has said that the batch is
// complete: a page that was cut short is an error, never a short page.
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
