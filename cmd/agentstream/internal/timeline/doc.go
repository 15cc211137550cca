// Package timeline shows runs to people: the commands tail and replay.
//
// # What it is
//
// tail follows a run of a server, replay plays a stored one with its own timing. Both print JSON lines, or a timeline:
// a paragraph for each message, call and change of state.
//
// # Contract
//
// Events are shown in order and once, also after connections were cut. A hole in the numbers is an error.
// Nothing from outside can act on the terminal. What cannot be shown otherwise is shown as JSON.
//
// # Concurrency
//
// A command runs in one goroutine.
//
// # What it does not do
//
// It does not change a run.
//
// # Where to look next
//
// timeline.go for what is shown of each event; pen.go for how text is wrapped.
package timeline
