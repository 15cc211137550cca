// Package producerstest holds what the tests of the write side share.
//
// # What it is
//
// [FaultyLog] is a log in memory that loses answers and packs. The functions write to one run, [Key], and read
// what is stored in it.
//
// # Contract
//
// A function that takes a testing.T ends the test when it fails. Whatever it opens is closed with the test.
//
// # Concurrency
//
// FaultyLog is safe for concurrent use, except for its fields Only and Gate, which are set before its first use.
//
// # What it does not do
//
// It starts no server: producers/natsjs tests the same on JetStream.
//
// # Where to look next
//
// The tests of producers, producers/command and producers/reaper.
package producerstest
