// Package command hands the commands of a run to its agent.
//
// # What it is
//
// [Reader] reads the commands of a run from its log: cancel, pause, resume, redirect, decisions on plans, answers
// and messages. A [Command] is one of them; [Command.Commit] stores that the agent has dealt with it.
//
// # Contract
//
// Commands of a lane are handed over in the order of the log, to one writer of the lane at a time, and once to
// each writer. A command that a writer has taken is not handed to any later one. One that was handed over and
// not taken is handed to the next writer, marked as redelivered.
//
// # Concurrency
//
// A Reader is safe for concurrent use and starts no goroutine; a [Waker] may call it from one of its own.
//
// # What it does not do
//
// It does not obey: what a command means is the agent's business. It does not store commands either; whoever
// sends one appends an event.
//
// # Where to look next
//
// producers/worker answers sessions with it. docs/producers.md is the guide.
package command
