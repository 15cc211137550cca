// Package ws writes frames as WebSocket text messages (RFC 6455).
//
// # What it is
//
// A [Transport] holds what all connections share: settings and a pool of buffers. A [Sink] is one
// connection after its upgrade. Frames are collected by Write and go out with Flush, each as one
// unfragmented text message that holds the frame's data. A client's messages go to Options.Received, which
// may answer with Reply: a conversation.
//
// # Contract
//
// A request that cannot be upgraded is refused before anything is written, so that the edge can answer
// in its own words. Only text is taken from a client: binary closes with 1003, what is not UTF-8 with
// 1007, what is too large with 1009, what is not the protocol with 1002. Nothing of what a client sends
// is ever sent back, but a ping's payload in its pong. No extension is agreed on, so nothing is ever
// compressed.
//
// Every write has a deadline of its own, over at most 64 KiB: a client that takes 64 KiB in a
// WriteTimeout is slow but served, one that takes less is cut (dialect.ErrSlowClient). One that is ended
// for being slow, before that, gets the rest of its frame and the close frame if it reads again in that
// time (transport.End.Wait). There is no queue: what is not written yet stays in the log. Nor is there one
// of what a client sends: it is not read while a message is dealt with. A client that answers no ping for a
// WriteTimeout is gone.
//
// A silent connection that a poller watches holds no goroutine and less than 2 KiB.
//
// # Concurrency
//
// A Sink belongs to one goroutine, but for Reply, Ready, KeepAlive and Cut, which any may call, and TryWrite, whose
// Rest is its caller's: what they and it write leaves in one order, between whole frames. A second goroutine, the
// sink's own, reads what the client sends, calls Received, and answers pings and the close; it is there while there is
// something to read, and has ended when End returns. A Transport is safe for concurrent use.
//
// # What it does not do
//
// It knows no origins and no credentials: whoever upgrades has checked them. It does not decide when a
// stream ends. HTTP/2 (RFC 8441) is not supported.
//
// # Where to look next
//
// Package edge, which feeds sinks; docs/decisions/0013 for why the frames are read and written here.
package ws
