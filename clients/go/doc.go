// Package agentstream is the Go client of an agentstream server: it begins runs, writes events,
// sends commands, and watches runs over as many connections as that takes.
//
// # What it is
//
// A [Client] speaks the native dialect over HTTP/1.1 and HTTP/2. [Client.Watch] returns a [Stream]: the
// events of a run behind a cursor, in order, each once, across cuts, restarts of the server and
// credentials that end. [Client.Append] and the commands are repeated until they are answered, under
// one idempotency key, so that what they store is stored once. [Client.Snapshot] returns the sum of a
// run, and [Fold] adds what comes after it.
//
// # Contract
//
// Loss is never silent. The first seq of every event is the last one's seq + 1, but for deltas that came
// together, which share both ([Stream.Cursor] moves with the last of them); where it is not, the Stream says so with a [GapError] before it goes on, or asks the server again for what is missing
// ([Options].Refetch). A cursor moves only when a whole frame has arrived. What asking again cannot
// change comes back as an [*Error], which the sentinels sort ([ErrNotFound], [ErrExpired] …); all
// other trouble is waited out with growing pauses, for as long as the context and [Config].GiveUp
// allow. io.EOF is the end of the run, confirmed by the server.
//
// # Concurrency
//
// A Client is safe for concurrent use. A Stream belongs to one goroutine, except Close. Nothing here
// starts a goroutine that outlives the call; an open Stream holds one connection, which Close and the
// end of its context let go.
//
// # What it does not do
//
// It keeps no cursor beyond the Stream's life: [Stream.Cursor] is the caller's to store. It does not
// decode payloads. It speaks no WebSocket and no gRPC, which need nothing but the cursor as well.
//
// # Where to look next
//
// docs/clients.md shows its use; docs/dialects/native.md is what it speaks. watch.go has the Stream,
// request.go the repeating.
package agentstream
