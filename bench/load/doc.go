// Package load puts a measured load on an agentstream server and checks every delivery.
//
// # What it is
//
// [Run] begins runs of its own on a server, publishes events into them over HTTP or with the SDK,
// watches them over SSE or WebSocket, and returns a [Result]: rates, latency, the CPU and memory of the
// server where they can be seen, and what was lost, repeated or out of order. The program
// agentstream-bench is made of it.
//
// # Contract
//
// Each event carries a marker: its run, its number in the run, and the moment at which it was due.
// Each watcher accounts for each number, so a figure can never hide a loss: [Result.Err] names what is
// missing. Latency is counted from when an event was due, not from when a writer that had to wait
// got around to sending it (otherwise an overloaded server would look fast). A timer of this process
// that fires late is not charged to the server. A stream that ends is resumed behind the last event
// that has come, as any client does, and counted. Runs are named after the load, so that two loads
// and a deployment's own runs do not meet, and are ended when the load ends.
//
// # Concurrency
//
// Run is safe to call from many goroutines; each call is a load of its own. One goroutine per watcher
// waits in the runtime's poller and borrows a buffer while there is something to read; one or two per
// publishing connection.
//
// # What it does not do
//
// It starts no server (agentstream-bench does), does not repeat a request that was refused or not
// answered, and shares the machine's cores with a server that runs beside it: look at the CPU per delivery
// first, and at rates second. Requests are pipelined, which a balancer may answer one by one.
//
// # Where to look next
//
// docs/scale.md, "Load testing your own deployment"; package plot for the picture.
package load
