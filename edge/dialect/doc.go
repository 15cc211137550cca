// Package dialect is the contract between the edge and the wire protocols that its clients speak.
//
// # What it is
//
// A [Dialect] reads a request of its protocol into a [Request], makes a [Projector] for it, and
// writes errors in its protocol's words. A [Projector] turns records of a run's log into [Frame]s.
// A [Reason] names why a stream or a request ends; what each transport does then is one table in
// package edge. A [Mode] says how a stream ends when nothing goes wrong.
//
// # Contract
//
// A dialect is a pure translation: no I/O, no clock, no goroutine, no state outside its projectors.
// The same records give the same frames on every node and at every time, which is what lets a client
// resume anywhere. A projector that carries state is fed every record of the run from its first on ([Stateful]), so
// resuming needs nothing that only one server remembers.
//
// A resume token stands only on an event's last frame: a client that is cut off between two frames
// of one event gets that event again, whole.
//
// # Concurrency
//
// A Dialect is immutable and used by many goroutines. A Projector and a Frames belong to one.
//
// # What it does not do
//
// It does not know transports, the log or who the caller is, and it does not leave out or join records:
// a [Request] says what is wanted, and the edge shapes before it projects. What only some protocols have is a separate
// interface of a projector, which the edge finds by assertion: [Stateful], [Opener], [Spanner].
//
// # Where to look next
//
// dialect.go for the interfaces, stream.go and request.go for what they speak of; edge/protocol for how a protocol is
// mounted; dialecttest for a sample; edge/ends for the table of ends.
package dialect
