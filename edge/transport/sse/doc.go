// Package sse writes frames as server-sent events (WHATWG HTML, section 9.2), over HTTP/1.1 and
// HTTP/2.
//
// # What it is
//
// A [Transport] holds what all connections share: settings and a pool of buffers. A [Sink] is one
// response. Frames are collected by Write and go out with Flush.
//
// # Contract
//
// A frame is written as event, data, id, in that order and in one piece where it fits: a client that
// stores the id after the blank line has the data by then. Data is always one line. A carriage return
// ends a line in SSE just as a line feed does, so neither passes, whatever a frame holds.
//
// Every write has a deadline of its own, over at most 64 KiB: a client that takes 64 KiB in a
// WriteTimeout is slow but served, one that takes less is cut (dialect.ErrSlowClient). There is no
// queue: what is not written yet stays in the log.
//
// # Concurrency
//
// A Sink belongs to the goroutine of its request. A Transport is safe for concurrent use.
//
// # What it does not do
//
// It does not decide when a stream ends or how: End writes the last frame where the table of ends wants
// one; then a clean end is returning from the handler, a broken one is panicking with
// http.ErrAbortHandler, and package edge chooses.
//
// # Where to look next
//
// Package edge, which feeds sinks.
package sse
