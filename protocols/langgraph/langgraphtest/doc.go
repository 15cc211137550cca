// Package langgraphtest holds what tests of LangChain's Agent Streaming Protocol share: what frames may look like, a
// thread that has all of them, and filters to watch it with.
//
// # What it is
//
// The folder schemas has JSON Schemas of all frames, of the data of events and of the results of commands, written from
// the protocol's text and from what its clients need beyond that. [Valid] holds a frame to them, [ValidResult] a
// result. [AllChannels] is a log in short; [Filters] are bodies of requests.
//
// # Contract
//
// The schemas know the protocol and nothing of this server: what they refuse is the server's departure from the text.
//
// # Concurrency
//
// All may be called from many goroutines.
//
// # What it does not do
//
// It opens no connection, and it does not follow the order of events.
//
// # Where to look next
//
// protocols/langgraph and protocols/langgraph/serve, whose tests use it.
package langgraphtest
