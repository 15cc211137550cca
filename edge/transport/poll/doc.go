// Package poll reports when connections have something to read, without a goroutine for each.
//
// # What it is
//
// A [Poller] watches connections that are silent nearly always: a client of a stream says nothing until it
// leaves. A goroutine that waits in Read costs 2 to 8 KiB of stack and more than all the rest that an idle
// stream holds; an entry here costs about a hundred bytes.
//
// # Contract
//
// A [Watch] calls its function once for each time that it is armed, after the connection has become
// readable, has ended, or has failed. It is armed to begin with. When the Poller ends it calls each once
// more, so that its owner can look after the connection itself. The connection stays its owner's: it is
// read, written and closed as always.
//
// # Concurrency
//
// All methods may be called from any goroutine. The function is called in the Poller's own, one at a time
// over all connections: it must not block.
//
// # What it does not do
//
// It does not write: see transport.Try. It exists on Linux (epoll, beneath the runtime's own); elsewhere
// New reports that there is none, and connections are read by a goroutine each.
//
// # Where to look next
//
// transport/sse and transport/ws, which use it; docs/decisions/0018-connections.md for what was measured.
package poll
