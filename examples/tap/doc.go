// Command tap reads the log from NATS and prints the tokens that each message has cost.
//
// # What it is
//
// Start a server whose log is open to other programs, then the tap, then a run:
//
//	bin/agentstream dev --no-demo --nats-listen 127.0.0.1:4222
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/tap
//	bin/agentstream demo
//
// # Contract
//
// Every message is printed, those of a run in order. Started again, the tap continues where it stopped. Started twice,
// both share the work.
//
// # Concurrency
//
// That of package tap: one goroutine writes each partition of the log.
//
// # What it does not do
//
// It stores nothing: a line may be printed again after a restart. It does not read the archive.
//
// # Where to look next
//
// docs/taps.md; package tap.
package main
