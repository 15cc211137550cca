// Package native is the Koder Agent Stream Protocol, the dialect that the log itself is written in.
//
// # What it is
//
// GET /v1/agent/runs/{run}/stream, over server-sent events or a WebSocket, and the gRPC method
// agent.v1.AgentRun/Stream. An event is one frame: its type is the event's name, its line the data,
// untouched, its seq the resume token (native §5); over gRPC the data is the message agent.v1.Event,
// whose payload is the line's payload, byte for byte.
//
// # Contract
//
// The cursor is the seq of the last event that the client has: the header Last-Event-ID, which wins,
// or the query parameter after or last_event_id, or the field after_seq or after_id. An event's id
// (evt_…) is taken as well. No cursor, or 0, is the start of the run. Anything else is refused; nothing
// is ever read as "from the start" by mistake.
//
// Also read are detail (query or header), bundle, child, nested, types, snapshot and speed; the request
// message has them as fields. The same request means the same over every transport.
//
// The stream ends behind the root's final run.lifecycle (mode B). A resume whose cursor is that event
// is answered 204, after which an EventSource does not come again, or with a clean end at once.
//
// # Concurrency
//
// The Dialect is immutable. A projector belongs to one stream.
//
// # What it does not do
//
// It does not fold deltas or limit their pace: package shape does, before records come here. It knows no
// routes but its streams; lists, pages, files, snapshots and commands are edge/rest's.
//
// # Where to look next
//
// Package dialect for the contract, schema/contracts/agent/v1/agent.proto for the messages, testdata for
// what each scenario looks like on the wire.
package native
