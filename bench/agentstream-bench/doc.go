// Command agentstream-bench puts a measured load on an agentstream server and checks every delivery.
//
// # What it is
//
// It starts a server of the program agentstream, or takes one that runs, and calls package load.
//
// # Contract
//
// Events that are lost, repeated or out of order are an error. A server that was started here ends with the command,
// and leaves nothing behind. A token is sent to the server of --url and to no other.
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
// main.go for the flags; server.go for the server that it starts; docs/scale.md, "Load testing your own
// deployment".
package main
