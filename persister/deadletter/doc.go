// Package deadletter finds dead letters in a store and tries them again.
//
// # What it is
//
// A persister.DeadLetter is what could not be stored as a row. This package holds what happens to it afterwards: a
// [Query] selects dead letters, a [Stored] is one as a store returns it, and [Redrive] tries to store their rows again.
//
// # Contract
//
// A dead letter leaves the store only after its rows are stored, or after other dead letters have taken its place.
// Redrive may be interrupted at any point and called again. What is stored is never overwritten.
//
// # Concurrency
//
// All functions are safe for concurrent use as far as the store is.
//
// # What it does not do
//
// It sets nothing aside itself: a persister does. It does not decide which dead letters are worth another try.
//
// # Where to look next
//
// persister.DeadLetter for the reasons, postgres and sqlite for the tables.
package deadletter
