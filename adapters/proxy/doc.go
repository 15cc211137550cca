// Package proxy puts model calls on the log while they pass: a reverse proxy for the Anthropic, OpenAI
// and Gemini APIs that writes a run beside every call.
//
// # What it is
//
// [Proxy] is an http.Handler. It hands requests on to an [Upstream] and answers back, and keeps a copy of
// both in a bounded buffer. A recorder decodes the copy (adapters/provider and its adapters) and writes
// the events into a run through a [Sink]. Headers of the request name the run, child and turn; without
// them each call is a run of its own, whose id is a header of the answer.
//
// # Contract
//
// The client's bytes are the upstream's: unchanged, and flushed as they come. Whatever the log does, a
// model call is neither broken nor delayed by it. What finds no room in the buffer while the log is slow
// or away is lost to the run, and recorded there as a loss event with its reason and bytes as soon as the log
// takes it; where that never happens it is logged and counted. Behind a hole an answer is not decoded
// further: its message ends as incomplete. Messages of one lane never lie across each other: calls that
// run at the same time are written one after the other, in the order in which they came.
//
// What a request has that the run has not is recorded once, at whatever proxy the request arrives and
// however often: that is decided by the conversation that it holds and by the run's events alone.
//
// Credentials are passed on. They are in no event, no log line and no error; the headers of requests are
// not recorded at all.
//
// # Concurrency
//
// A Proxy is safe for concurrent use. Each recorded call has one goroutine until its events are stored;
// Proxy.Run waits for them.
//
// # What it does not do
//
// It does not authenticate: any client that reaches it may write into the runs of the tenants that its
// operator lists. It repeats no model call, changes no request but for its own headers and
// Accept-Encoding, and does not know what writes the log.
//
// # Where to look next
//
// proxy.go is a call's way through, call.go what is written of it, spool.go the buffer. conversation.go is a
// request as it is read, memory.go what the log holds of a lane, reading.go what is new. docs/proxy.md is the
// page for users.
package proxy
