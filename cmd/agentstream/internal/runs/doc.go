// Package runs lists runs and sends commands to them.
//
// # What it is
//
// The command runs, and approve, reject, pause, resume, redirect, cancel, answer and say. All are clients of a server.
//
// # Contract
//
// A command prints the run and the number of its event. With --key it is stored once. What a command does is for the
// agent to decide.
//
// # Concurrency
//
// A command runs in one goroutine.
//
// # What it does not do
//
// It does not follow runs: see package timeline.
//
// # Where to look next
//
// runs.go for the list; command.go for commands.
package runs
