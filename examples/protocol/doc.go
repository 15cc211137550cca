// Command protocol serves a protocol of its own in about a hundred lines: the words of a run as server-sent events.
//
// # What it is
//
// words.go is the protocol, main.go a server with a log in memory and a run to watch:
//
//	go run ./examples/protocol
//	curl -N http://127.0.0.1:8088/words/hello
//
// # Contract
//
// A client that comes back with Last-Event-ID gets exactly the rest. The edge does that, and keep-alives, limits,
// slow clients and shutdown; a protocol only translates.
//
// # Concurrency
//
// A projector belongs to one stream at a time. This one has no state.
//
// # What it does not do
//
// It has no routes besides its stream, no credentials and no state along a run; the sample has all of them.
//
// # Where to look next
//
// docs/contributing.md, "How to add a protocol"; protocols/sample.
package main
