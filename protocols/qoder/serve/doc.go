// Package serve serves the sessions API of the qoder dialect: what is asked and answered beside its streams.
//
// # What it is
//
// [Protocol] returns what edge.Config mounts: create, get, list, update, cancel, archive and delete sessions, send
// events, page through the history of a session or a thread, list, get and archive threads.
//
// # Contract
//
// A session is a run, and all that is known of it is in the run's log: any node answers any request, and what one
// answers is what the stream shows. Events are acknowledged when they are durable. A list of sessions is of what
// was persisted and may be a moment behind; everything else is as of the log's newest event.
//
// What a request is allowed by is checked on the very head that its events follow. All of a request are checked
// before any is stored; those for one thread that follow each other are stored all or none. A repeat with the same
// Idempotency-Key stores nothing and answers the same, also when the run has ended or begun anew in between.
//
// A page of a history ends after 1 to 1,000 events, 4 MiB, or 20,000 records looked at. Following next_page gives
// every event once, whatever is appended meanwhile.
//
// # Concurrency
//
// All is safe for concurrent use; nothing here starts a goroutine or keeps anything between requests.
//
// # What it does not do
//
// It does not stream: package edge does. It does not know what events and objects look like: package qoder does.
//
// # Where to look next
//
// protocols/qoder for the protocol, protocol.Call for what a route may do, docs/dialects/qoder.md for users.
package serve
