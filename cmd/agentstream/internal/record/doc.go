// Package record runs a command whose model calls are to pass a proxy.
//
// # What it is
//
// Redirect puts the proxy's address into a command's environment, in the variables that the providers' libraries read.
// Child is the command as a process: its signals, its standard streams, how it ended and the end of what it said on the
// standard error.
//
// # Contract
//
// The command runs as it would alone: it reads the same standard input, writes to the same output, gets the same
// signals, and its exit status is the one that is passed on. Its standard error is a terminal where it would have been
// one. A base URL that the caller has set stays the one that calls go to.
//
// # Concurrency
//
// A Child is for one goroutine. Tail is safe for concurrent use.
//
// # What it does not do
//
// It serves no proxy and writes no run: see record.go of the command.
//
// # Where to look next
//
// environ.go for the variables; child.go for the process; adapters/proxy for what records.
package record
