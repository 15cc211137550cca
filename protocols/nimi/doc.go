// Package nimi translates runs into the published runtime protocol, gRPC of package nimi.runtime.v1.
//
// # What it is
//
// A [Dialect] whose streams are views of runs: a scenario, a job, a workflow, a realtime session, an agent, a feed.
// Records that come by the thousand are encoded here by hand; the rest by the generated messages.
//
// # Contract
//
// Frames follow from the records of a run and the request alone. A terminal frame comes from the log: nothing is made
// up for a stream that breaks off. Text is held until there are 32 bytes of it (K-STREAM-006).
//
// # Concurrency
//
// A Dialect is safe for concurrent use; a projector belongs to one stream.
//
// # What it does not do
//
// It answers no unary calls and chooses no status: protocols/nimi/serve does.
//
// # Where to look next
//
// docs/dialects/runtime.md has the protocol, and the form in the log.
package nimi
