// Package sentence holds refusals to what a person can read.
//
// # What it is
//
// [Check] returns what is wrong with a message: it names parts of the program, says something twice, or is a trail of
// doings and no sentence. [Of] finds the messages in the body of a refusal, whatever its protocol.
//
// # Contract
//
// What passes is not empty, has whole characters, at most one colon outside of what is quoted, no name of a package and
// no value of Go, and no two words of some meaning together twice.
//
// # Concurrency
//
// All is safe for concurrent use.
//
// # What it does not do
//
// It knows no grammar: it finds words that stand twice, not what they mean.
//
// # Where to look next
//
// edge/ends for the table of refusals; edge/edgetest, which looks at every answer of a test's server.
package sentence
