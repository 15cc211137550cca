// Package cputime measures the CPU time that code takes.
//
// # What it is
//
// What tests of growth and benchmarks use in place of the clock, which also counts what other processes on
// the machine do.
//
// # Contract
//
// Of counts one thread on Linux and the whole process elsewhere. Process counts the whole process.
//
// # Concurrency
//
// Everything is safe for concurrent use.
//
// # What it does not do
//
// It is no part of the product, and it does not work on Windows, which has no getrusage.
//
// # Where to look next
//
// producers, TestProviderGrowsSlowly.
package cputime
