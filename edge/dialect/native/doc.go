// Package native is the Koder Agent Stream Protocol, the dialect that the log itself is written in.
//
// # What it is
//
// GET /v1/agent/runs/{run}/stream. An event of the log is one frame: its type is the event's name,
// its stored line the data, untouched, its seq the resume token (native §5).
//
// # Contract
//
// The cursor is the seq of the last event that the client has: the header Last-Event-ID, which wins,
// or the query parameter after. An event's id (evt_…) is taken as well. No cursor, or 0, is the start
// of the run. Anything else is refused; nothing is ever read as "from the start" by mistake.
//
// The stream ends behind the root's final run.lifecycle (mode B). A resume whose cursor is that event
// is answered 204, which tells an EventSource to stay away.
//
// # Concurrency
//
// The Dialect is immutable. A projector belongs to one stream.
//
// # What it does not do
//
// It does not fold deltas or limit their pace yet: every client gets every event.
//
// # Where to look next
//
// Package dialect for the contract, testdata for what each scenario looks like on the wire.
package native
