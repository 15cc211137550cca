// Package bench is the command that loads a server and checks every delivery.
//
// # What it is
//
// It starts a server of this binary, or takes one that runs, and calls package internal/load.
//
// # Contract
//
// Events that are lost, repeated or out of order are an error. A server that was started here ends with the command, and
// leaves nothing behind.
//
// # Concurrency
//
// The command runs in one goroutine; the load has its own.
//
// # What it does not do
//
// It generates no load itself, and judges no speed.
//
// # Where to look next
//
// bench.go for the flags; server.go for the server that it starts.
package bench
