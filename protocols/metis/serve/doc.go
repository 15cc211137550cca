// Package serve serves the metis protocol: its HTTP routes, and the socket on which a session is watched.
//
// # What it is
//
// [Protocol] returns what edge.Config mounts: create, read and end sessions, submit and cancel turns, decide on
// confirmations, page through messages and events, and the conversation of a client that has subscribed to a session.
//
// # Contract
//
// A session is a run, or a child of one by its own id; all that is known of it is in the run's log, so any node answers
// any request. What a request is allowed by is checked on the very head that its events follow: of two requests at two
// nodes that exclude each other one is stored. A repeat with the same Idempotency-Key stores nothing and answers the
// same.
//
// A socket gets subscribe_ack, then the snapshot if it asked for one, then each event that its filter shows behind the
// place which these speak of: once, in the order of the log, as it was published.
//
// # Concurrency
//
// All is safe for concurrent use. Nothing here starts a goroutine or keeps anything between requests, but what belongs
// to a connection.
//
// # What it does not do
//
// It does not stream: package edge does. It does not know what events and snapshots look like: package metis does.
//
// # Where to look next
//
// protocols/metis for the translation, protocol.Conversation for what a socket may do, docs/dialects/metis.md for
// users.
package serve
