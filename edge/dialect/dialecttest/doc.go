// Package dialecttest has sample protocols, written against the contract alone, for tests and as examples.
//
// # What it is
//
// [Talk] is a protocol of a conversation on a WebSocket (conversation.go) and of a protobuf service whose unary method is
// an HTTP route as well (rpc.go).
//
// # Contract
//
// They use what package protocol and package dialect export and nothing else.
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
// docs/contributing.md, which builds them step by step.
package dialecttest
