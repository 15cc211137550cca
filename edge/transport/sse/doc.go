// Package sse writes frames as server-sent events (WHATWG HTML, section 9.2), over HTTP/1.1 and
// HTTP/2.
//
// # What it is
//
// A [Transport] holds what all connections share: settings and a pool of buffers. A [Sink] is one
// response, a [Direct] one on a connection that was taken over from the HTTP server (HTTP/1.1, whatever
// the request's method; its body must have been read). Frames are collected by Write and go out with
// Flush. A [Format] is how a protocol writes its frames and its headers.
//
// # Contract
//
// A frame is written as event, data, id, in that order and in one piece where it fits; a format may want
// the id first. A client takes the id with the blank line: it has the data by then. Data is one line.
// A carriage return ends a line in SSE just as a line
// feed does, so neither passes within a line, whatever a frame holds. What a client reads is the same over
// each kind of connection.
//
// Every write has a deadline of its own, over at most 64 KiB: a client that takes 64 KiB in a
// WriteTimeout is slow but served, one that takes less is cut (dialect.ErrSlowClient). One that is ended
// for being slow, before that, gets the rest of its frame and the last ones if it reads again in that
// time (transport.End.Wait). There is no queue: what is not written yet stays in the log.
//
// # Concurrency
//
// A Sink belongs to the goroutine of its request. A Transport and a Format are safe for concurrent use.
//
// # What it does not do
//
// It does not decide when a stream ends or how: End writes the last frames where there are any; then a
// clean end is returning from the handler, a broken one is panicking with http.ErrAbortHandler, and
// package edge chooses.
//
// # Where to look next
//
// Package edge, which feeds sinks.
package sse
