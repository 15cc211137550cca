// Package metistest holds what tests of the metis protocol share: what frames may look like, and what a client shows.
//
// # What it is
//
// The folder schemas has JSON Schemas of all frames and of the events of all types, written from the protocol's text;
// [Valid] holds a frame to them. [Fold] is a client that follows sections 3.4, 5.3 and 5.4 of that text: frames become
// the state that it shows. The folder conformance has recorded and written frames with the state that they lead to
// (11.3), for clients in any language; [Cases] reads it.
//
// # Contract
//
// Schemas and Fold know the protocol's text and nothing of this server: what they refuse or show otherwise is the
// server's departure from the text.
//
// # Concurrency
//
// Valid may be called from many goroutines. A Fold belongs to one.
//
// # What it does not do
//
// It opens no connection.
//
// # Where to look next
//
// internal/e2e has the tests against the binary, and the same fold in TypeScript (js/metis-fold.ts).
package metistest
