// Package metis translates runs into the metis streaming protocol: a snapshot, then a stream of events, over one
// WebSocket.
//
// # What it is
//
// A run is a session, and a child of it is a worker with a session of its own. [Dialect] makes a [Projector], which
// turns the records of a run into events (docs/dialects/metis.md has the table) and knows what routes and snapshots say
// of a session. [ParseSubscribe] reads what a client asks for. [Filter] is a predicate over type, actor and worker.
//
// # Contract
//
// It is a pure translation: the same records give the same events, with the same ids, on every node and under every
// filter. An event's id is the place of its record and its slot in that, so ids ordered as strings are in the order of
// the log, and any id of a session is a cursor in it.
//
// # Concurrency
//
// A Dialect is immutable. A Projector belongs to one goroutine; copies share memory that neither changes.
//
// # What it does not do
//
// It has no routes and no socket: see package sessions below it. It stores nothing and reads no clock.
//
// # Where to look next
//
// projector.go has what all records have in common, catalogue.go the types, turn.go, model.go and tool.go the parts of
// a turn, story.go what is remembered, snapshot.go snapshots and messages.
package metis
