// Package dialecttest has sample protocols, written against the contract alone, for tests and as examples.
//
// # What it is
//
// [Protocol] registers [Sample], a protocol of streams: it is what to copy when a protocol is added. [Talk] is a protocol of
// a conversation on a WebSocket (conversation.go) and of a protobuf service whose unary method is an HTTP route as well
// (rpc.go).
//
// # Contract
//
// They use what package protocol and package dialect export and nothing else. The tests of package edge serve them over real
// connections.
//
// # Concurrency
//
// All values are immutable.
//
// # What it does not do
//
// No product speaks them.
//
// # Where to look next
//
// docs/contributing.md, which builds them step by step; edge/protocol for the contract.
package dialecttest
