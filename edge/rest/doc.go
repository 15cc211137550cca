// Package rest answers the native protocol's requests over HTTP: runs, events, pages, snapshots, exports, blobs,
// commands and tickets.
//
// # What it is
//
// [API.Routes] are the paths. [API.StorePosts] does for messages of the log's inbox what a POST of events does for a
// request.
//
// # Contract
//
// Events are acknowledged when they are durable, all of a request or none. Ids are checked before anything is looked
// up. A command is stored only behind the very head whose state allows it.
//
// # Concurrency
//
// An API is safe for concurrent use.
//
// # What it does not do
//
// It streams nothing: edge/live does. It does not number or store events: producers.Appender does.
//
// # Where to look next
//
// edge/protocol for what a call may do; schema/contracts for what the answers look like.
package rest
