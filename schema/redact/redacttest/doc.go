// Package redacttest makes texts that redaction must find, for the tests of whoever stores events.
//
// # What it is
//
// [Secrets] returns one generated secret of every known kind, and one for a rule of the tester's own. [Rules] is the file
// of rules that finds them. [Leak] says which of them bytes still hold.
//
// # Contract
//
// The same seed gives the same secrets. None of them was ever valid: they are random.
//
// # Concurrency
//
// Functions keep no state.
//
// # What it does not do
//
// It starts nothing and reads no files.
//
// # Where to look next
//
// schema/redact/known.go has what is looked for.
package redacttest
