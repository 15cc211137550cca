// Package serve serves LangChain's Agent Streaming Protocol to LangGraph's clients: the streams and the socket of a
// thread, its commands, and the routes that these clients call beside them.
//
// # What it is
//
// [Protocol] returns what edge.Config mounts, at / and below [Base].
//
// # Contract
//
// A thread is a run of the log, so any node answers any request. A stream of a thread that is not there yet is silent
// until it is. Streams go on when a run of the thread ends; a node that goes away cuts them, and the client comes
// again, with a cursor or without. What a command is allowed by is checked on the very head that its events follow.
//
// On a socket the answer to a command comes before the events that it brings, and an event comes once, however many
// subscriptions show it. The id of a subscription says its filter, so that any node can restore it.
//
// # Concurrency
//
// All is safe for concurrent use. Nothing here starts a goroutine or keeps anything between requests, but what belongs
// to a connection.
//
// # What it does not do
//
// It does not stream: package edge does. It does not know what events and states look like: package langchain does.
//
// # Where to look next
//
// protocol.go has the table of routes, socket.go the conversation, commands.go what both transports of commands do;
// docs/dialects/langchain.md is for users.
package serve
