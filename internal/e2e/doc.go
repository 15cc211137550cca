// Package e2e proves the promises on the built binary: real processes, really killed.
//
// # What it is
//
// Tests only. A harness builds cmd/agentstream once, starts its roles on free loopback ports and
// kills them; one checker compares what was acknowledged with what each reader and each table holds.
//
// # Contract
//
// The short form runs with every test run; the long forms (AGENTSTREAM_KILLS, AGENTSTREAM_OUTAGE, AGENTSTREAM_EVENTS,
// AGENTSTREAM_RUNTIME, AGENTSTREAM_DRILLS and AGENTSTREAM_ATTACKS; make campaign, kills, outage, archive-rate, runtime,
// drills, memory, neighbours) are the same code with larger numbers. Seeds are printed. A run in which no kill hit a
// publish that was under way fails, because it proves nothing.
//
// # Concurrency
//
// Tests that look at times and at memory run one after the other: they share two cores with the processes
// that they start. Those that mostly wait come behind them, some at the same time; in the long forms they
// run alone too.
//
// # What it does not do
//
// It judges no time in the short form: two cores are shared with whatever else runs. What the archive
// must reach (docs/archive-proofs.md) is judged in the long forms; everything else is measured by bench.
//
// # Where to look next
//
// docs/guarantees.md for what is promised, docs/archive-proofs.md for what was measured of the archive.
package e2e
