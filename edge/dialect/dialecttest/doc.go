// Package dialecttest has a sample protocol, written against the contract alone, for tests and as an example.
//
// # What it is
//
// [Protocol] registers [Sample], which has one of everything that a protocol may have: it is what to copy when a protocol is
// added. sample.go has the registration and reads requests, projector.go makes frames, talk.go is a conversation on a
// WebSocket, routes.go has HTTP routes and a unary RPC.
//
// # Contract
//
// It uses what package protocol and package dialect export and nothing else. The tests of package edge serve it over real
// connections, over every transport.
//
// # Concurrency
//
// All values are immutable.
//
// # What it does not do
//
// No product speaks it.
//
// # Where to look next
//
// docs/contributing.md, which builds them step by step; edge/protocol for the contract.
package dialecttest
