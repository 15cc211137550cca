// Command agentstream is the one binary: every role of the product, and the tools beside it.
//
// # What it is
//
// One file per role: dev (everything in one process on embedded parts), edge, persist, proxy and migrate. Groups of
// commands are packages below internal: publish, timeline (tail, replay), runs (and the commands to a run), export,
// archive, retention, deadletters and completion. What servers share is in internal/process and internal/node, what
// commands share in internal/cli and internal/terminal. Flags, wiring and metrics live here and nowhere else.
//
// # Contract
//
// A flag wins over its environment variable (AGENTSTREAM_…, or the same name with _FILE for a file
// that holds the value), which wins over the configuration file. Exit status is 0 after a requested
// shutdown, 1 after a failure, 2 for wrong usage.
//
// # Concurrency
//
// A role is a list of stages; see internal/process for the order in which they end.
//
// # What it does not do
//
// No logic of the product: what could be tested without a process is in another package.
//
// # Where to look next
//
// dev.go shows how all parts are put together; main.go lists the commands.
package main
