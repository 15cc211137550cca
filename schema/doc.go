// Package schema is what all other packages build on: what an event is, how it is
// named, numbered, packed and addressed.
//
// # What it is
//
// An [Event] is one line of a run's log, in the envelope of the Koder Agent Stream Protocol (§2).
// A [Record] is a view of such a line that has not been decoded. A [Pack] is what is stored as one
// message: one to many lines of one run and one child. A [Head] is what the newest pack of a run
// records of the run. The catalogue ([Lookup]) holds the family and the flags of each event type.
//
// # Contract
//
// Seq is 1, 2, 3 … per root run, without holes; children write into the log of their root. Payload
// bytes are carried from producer to client untouched: an encoded line is never decoded and
// encoded again. Every decoder refuses what it cannot keep, with an error that wraps one sentinel.
// Names that end up in a subject come from an allow-list, checked here and nowhere else.
//
// # Concurrency
//
// Values are plain data. Functions are safe to call from many goroutines; nothing here starts one.
// [IDs] is the only stateful type and locks itself.
//
// # What it does not do
//
// No I/O and no clock: callers hand in the time. It does not know NATS, SQL or HTTP.
//
// # Where to look next
//
// schematest has the named scenarios that all other tests use; producers writes packs, fanout
// reads them.
package schema
