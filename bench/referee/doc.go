// Command referee measures the product beside its references with a load harness from outside, in
// rounds that take turns, and says for each promise of speed whether it holds.
//
// # What it is
//
// The harness is a program of its own that is named by a flag or by the variable REFEREE (built) or BENCH_SRC (its
// source): it starts a target, loads it, counts every delivery, and prints a line of JSON. referee offers it two shapes
// of the product as targets, dev (one process) and split (nats-server, edge and persist beside a PostgreSQL), and the
// harness' own reference targets. Either shape may also be made of an earlier binary, dev-before and split-before, so
// that both take turns. A further shape, floor, is what single events cost on the product's parts alone (package
// floor); it takes turns on the lines of single events. What the harness has no publisher for, publish streams, is
// loaded by package load.
//
//	referee run      the scenarios, with a bar and a verdict each
//	referee profile  what an event costs by parts of the product, from CPU profiles
//	referee growth   how cost grows with watchers and with runs, and what that means for capacity
//	referee report   the tables and pictures anew, from what has been measured
//	referee serve    one shape of the product as one process tree, for the harness
//	referee sdk      publish through the SDK, for the lines that do
//	referee floor    the shape floor, for serve
//
// # Contract
//
// Everything lands in one folder: a line of results.jsonl for each measurement, tables and pictures
// made of all of them. What is interrupted goes on where it stopped: a measurement that is there is
// not repeated. A folder belongs to one build of the product and one harness; another build is
// refused. A figure counts only if nothing was lost, doubled or out of order, and no connection was
// dropped; else its line fails, with the reason. Medians are over rounds, a ratio is that of medians.
//
// # Concurrency
//
// One measurement at a time, under a file lock that other measuring programs of the machine may
// take as well. PostgreSQL runs outside the measured tree; its CPU time is reported apart.
//
// # What it does not do
//
// It holds no load generator and no copy of the harness. It measures no network and no disk.
//
// # Where to look next
//
// plan.go for what is measured and the bars; docs/capacity.md and docs/performance.md for what the
// figures mean.
package main
