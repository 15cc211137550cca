// Package agui is AG-UI 1.0: HttpAgent of npm @ag-ui/client talks to it, TanStack's resuming client and CopilotKit's
// browser.
//
// # What it is
//
// protocol.go registers the routes, request.go reads what a POST says and writes what is new of it, projector.go
// follows the responses of a run, wire.go has the events and what is open, snapshot.go makes the messages of a page and
// the prelude of an answer.
//
// # Contract
//
// A thread is a run. A run of AG-UI is a response up to its end or to a question that it asks. Events depend on the log
// alone, so every event is a place to resume from. The answer to a POST replaces what its client holds by the messages
// of the log, and goes on from there. Of a body of the client the last message from the user and the answers to
// questions count, nothing else.
//
// # Concurrency
//
// All values but projectors are immutable.
//
// # What it does not do
//
// Tools of the page are passed on to the agent and not called. There is no protobuf, no STEP event and no activity.
//
// # Where to look next
//
// docs/dialects/agui.md has the routes and the departures; package chat is the reading below.
package agui
