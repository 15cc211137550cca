// Package live serves open streams, whatever carries them.
//
// # What it is
//
// A [Session] is one stream from its request to its end: it reads a source through a shared view or from history and
// feeds a transport's sink. [Live] holds all of a node: it opens sessions, ends those whose credential was revoked, and
// drains them at shutdown. A view shapes what the log brings once for all who watch the same; watchers that have
// everything are parked there, without a goroutine, and get the same bytes: a record is projected once for all of a
// form, whatever each of them selects, and so is history that several read at the same time. A [Conversation] is a
// connection that holds several sessions, its subscriptions, between the answers to its client's messages.
//
// # Contract
//
// A stream ends cleanly only when its run has ended and the client has the last event. In all other cases it is broken
// off in its transport's terms. What a view shows is made of what the log holds and of nothing else.
//
// # Concurrency
//
// A Live is safe for concurrent use. One goroutine serves a session, or none while it is parked. Each live view has one
// goroutine, shared by its watchers, while there is something to show. A slow client holds its own goroutine, one
// buffer and one batch. A Conversation deals with one message at a time; its subscriptions are sessions like others, of
// which one at a time collects frames.
//
// # What it does not do
//
// It knows no protocol and no HTTP: requests, and what logs record of them, are its caller's ([Report]).
//
// # Where to look next
//
// open.go and session.go for a stream's life, conversation.go and merged.go for many on one connection, view.go,
// park.go, broadcast.go and replay.go for what is shared, edge/shape for what views show.
package live
