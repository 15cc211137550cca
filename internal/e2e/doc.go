// Package e2e proves the promises on the built binary: real processes, really killed.
//
// # What it is
//
// Tests only. A harness builds cmd/agentstream once, starts its roles on free loopback ports and
// kills them; one checker compares what was acknowledged with what each reader and each table holds.
//
// # Contract
//
// The short form runs with every test run; the long form (AGENTSTREAM_KILLS=50, make campaign) is
// the same code with larger numbers. Seeds are printed. A run in which no kill hit a publish that
// was under way fails, because it proves nothing.
//
// # Concurrency
//
// Tests run one after the other: they share two cores with the processes that they start.
//
// # What it does not do
//
// It measures no time: bench does.
//
// # Where to look next
//
// docs/guarantees.md for what is promised.
package e2e
