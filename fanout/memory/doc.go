// Package memory is a log in memory: the write side, the read side and the live side in one value.
//
// # What it is
//
// [Log] satisfies producers.Log, fanout.History and fanout.Tail. Tests use it where a broker would
// only add time, and the fan-out is measured on it.
//
// # Contract
//
// The one of the interfaces, held to by fanouttest like the real one. Copies are handed out in the
// order of the log, within Append.
//
// # Concurrency
//
// Safe for concurrent use; it starts no goroutine.
//
// # What it does not do
//
// It keeps nothing after the process and has no bound but Expire.
//
// # Where to look next
//
// fanout/natsjs for the real one.
package memory
