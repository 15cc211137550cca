// Package demo is an agent with a script: a run that shows everything there is to see in about half
// a minute, without a model behind it.
//
// # What it is
//
// An [Agent] compares three designs of a queue: it thinks, proposes a plan, reads a file, sends a
// child to review while it measures with three tools at once, and answers. [Agent.Run] tells that
// as canonical events to a [Sink].
//
// # Contract
//
// The words are always the same; only times differ. Every run ends with a final run.lifecycle: done,
// or, when the context or a command cancels it, aborted, after everything that was open has been closed
// as cut short. With a channel of commands the agent pauses wherever it is, changes its course between
// two parts of the story, waits for its plan to be approved if it must be, asks a question, and
// answers messages, also after the end, which takes the run up again. Events carry type, lane, time and
// payload; the sink's publisher numbers them.
//
// # Concurrency
//
// Run works on the caller's goroutine and calls the sink from it alone. An Agent may run many runs,
// also at the same time.
//
// # What it does not do
//
// It calls no model and runs no tool. It does not read its commands from the log: whoever runs it hands
// them in.
//
// # Where to look next
//
// script.go is the story, stage.go how it is told, commands.go how it is interrupted.
package demo
