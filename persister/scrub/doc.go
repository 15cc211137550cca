// Package scrub hides texts in runs that are stored already: in tables, objects, the log, blobs and dead letters.
//
// # What it is
//
// A [Scrubber] applies the rules of package schema/redact to one run after the other. Numbers, types, times and ids of events
// stay. What is found becomes what it would have become before it was stored, and the events say so.
//
// # Contract
//
// Rows, what is made of them, and the name of the object change in one transaction. The object is a new one; the old one is
// removed after that. A message of the log cannot be changed: what is in the archive by then is removed from the log up to the
// last message that differs, and overwritten in the files of the servers. Of blobs in which something is found nothing stays.
// Every step can be done again: a run that was cut, at any point, is the same after the next one. Memory does not grow with the
// length of a run.
//
// # Concurrency
//
// A Scrubber belongs to one goroutine. Persisters, archivers and writers may work on the same runs. Two scrubbers may too.
//
// # What it does not do
//
// It does not take what was stored before out of the files of a database: the stores have Vacuum. It tells nobody: Config has
// Changed for that.
//
// # Where to look next
//
// run.go for the order of the steps, docs/redaction.md for what is covered.
package scrub
