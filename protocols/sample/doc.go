// Package sample is a protocol that has one of everything which a protocol may have: it is what to copy when one is
// added.
//
// # What it is
//
// sample.go registers the protocol and reads requests, projector.go makes frames, routes.go answers HTTP and unary
// RPCs, talk.go is a conversation on a WebSocket. sample.proto declares the gRPC service.
//
// # Contract
//
// It uses what packages protocol and dialect export. The tests of package edge serve it over every transport.
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
// docs/contributing.md builds it step by step.
package sample
