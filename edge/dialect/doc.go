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
// a [Request] says what is wanted, and the edge shapes before it projects. Abilities that only some protocols have
// (frames before the first record, client messages on a socket) are separate interfaces that the
// edge finds by assertion; they stand here once the second protocol needs them.
//
// # Where to look next
//
// native is the first dialect; the packages below edge/transport write frames; edge/reason.go has the
// table of ends.
package dialect
