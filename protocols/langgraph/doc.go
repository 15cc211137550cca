// Package langgraph is the dialect of LangGraph's clients: the Agent Streaming Protocol of LangChain, in which a run is
// read as a thread.
//
// # What it is
//
// A [Dialect] reads what a client asks for, the body of a POST or the params of subscription.subscribe, into a request,
// and makes a [Projector] that translates records to events of the protocol, each in its envelope. Of a projector that
// was fed a whole run, the routes beside the streams read what the thread is: [Projector.AppendState],
// [Projector.Status].
//
// # Contract
//
// A run is a thread, a stretch of it from one root lifecycle running to its terminal is a run of LangGraph, and a path
// of lanes is a namespace. Every frame has a number below 2^53, made of its record's seq and its slot ([Number]), and
// an id that says the same and is this thread's only ([EventID]). Both are the same on every node, under every filter,
// and, as a rule, when the run's beginning is no longer kept. There is one projection of a run for all filters: a
// filter is a dialect.Selection over the channel and the namespace.
//
// The finish of a block is whole and equals its deltas. docs/dialects/langchain.md has which record becomes which
// frame, what is lost, and where this departs from the protocol's text.
//
// # Concurrency
//
// A Dialect is immutable. A Projector belongs to one goroutine; copies of one that is not fed may be made at the same
// time.
//
// # What it does not do
//
// It has no routes, and it does no I/O. It does not decide whether a command is allowed: it says what a thread is.
//
// # Where to look next
//
// projector.go has the envelope and the order of frames, turn.go the runs of a thread, message.go and block.go what
// models say, step.go all other records, state.go the thread's state, request.go and selection.go filters, number.go
// ids.
package langgraph
