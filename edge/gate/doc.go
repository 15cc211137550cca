// Package gate bounds what a node holds before it knows who asks: connections, and the streams of HTTP/2.
//
// # What it is
//
// A [Gate] counts. Its [Listener] lets connections in and wraps each in a [Conn]. A [Pass] is the place of one request,
// from its headers to its end.
//
// # Contract
//
// A connection is a stranger until a caller was found on it, and so is a request until its caller is known. There are
// at most Config.Unknown connections of strangers: one more waits a little, then the oldest of them is closed. Each
// stream of HTTP/2 counts, per connection and per node, from the frame that opens it: a connection that opens more than
// can be answered is closed, whatever it asks for. What is over a bound is refused before anything is allocated for it.
//
// # Concurrency
//
// All is safe for concurrent use, but for a Pass, which belongs to one goroutine at a time, and Accept, which is for
// one goroutine.
//
// # What it does not do
//
// It knows no routes and no credentials, and writes no answers: who asks it refuses. Limits of tenants are counted
// elsewhere, once there is one.
//
// # Where to look next
//
// Package edge, which asks for a Pass at the beginning of each request.
package gate
