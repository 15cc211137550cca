// Package ends says what an error means to a client: one table, for all protocols and transports.
//
// # What it is
//
// [ReasonOf] maps an error to a dialect.Reason by the sentinels that it wraps. [OutcomeOf] returns the row of a reason:
// an HTTP status, a code, a WebSocket close code and a gRPC status. [Problem] describes a refusal in words for its
// client. The sentinels of this package are what an edge node itself reports; the others are those of the packages that
// it calls.
//
// # Contract
//
// Only errors about the request itself show their text to the client. An error that no row knows is internal. An error
// may wrap several sentinels; the one that stands higher in the table decides.
//
// # Concurrency
//
// The tables never change. All is safe for concurrent use.
//
// # What it does not do
//
// It writes nothing: package edge answers requests, and transports end streams.
//
// # Where to look next
//
// docs/dialects/native.md for the table as clients see it; edge/call.go, which applies it.
package ends
