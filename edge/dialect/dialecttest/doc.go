// Package dialecttest holds dialects to their contract.
//
// # What it is
//
// [Suite] is what every dialect must pass, whatever its words: it reads logs by the parts that an edge reads them with,
// and compares what clients are shown.
//
// # Contract
//
// It uses what packages dialect, live and state export, and knows no dialect.
//
// # Concurrency
//
// A Suite is immutable. It starts goroutines that end with its test.
//
// # What it does not do
//
// It opens no connection: the tests of package edge do. It does not know what a dialect's frames mean.
//
// # Where to look next
//
// Package sample below it, the protocol to copy; docs/contributing.md, which builds that step by step.
package dialecttest
