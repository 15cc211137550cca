// Package archivetest fills archives for tests of commands.
//
// # What it is
//
// Filled is a store of either kind with runs in it, and the flags that name it to a command.
//
// # Contract
//
// Stores end with their test. Where there is no PostgreSQL, its tests are skipped.
//
// # Concurrency
//
// A Filled is for one test.
//
// # What it does not do
//
// It checks nothing: the suites are in package persistertest.
//
// # Where to look next
//
// archivetest.go.
package archivetest
