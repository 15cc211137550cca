// Package stream reads the events of all runs of one tenant, from any place on, for clients that hold the place
// themselves.
//
// # What it is
//
// Tenants follows a tenant through the log, and through the archive where the log has dropped events. The two are
// one history.
//
//	log ─▶ persister.Queue of each partition ─┐
//	archive ─▶ what has left the log ─────────┴─▶ emit: event, cursor
//
// # Contract
//
// A cursor is the place in each partition. Whoever has the cursor of a record gets exactly what follows it, from any
// process, as long as the log has it. A cursor that is older than the log's window repeats the runs that have
// changed since, from the archive: nothing is lost, and events may come again. Events of a run are in the order of
// their seqs. What is kept nowhere is a record of the type schema.TapGap.
//
// # Concurrency
//
// Tenants is safe for concurrent use. Follow has a goroutine for each partition, all of which have ended when it
// returns; it calls emit from one at a time.
//
// # What it does not do
//
// It knows no broker, no HTTP, and no names of taps.
//
// # Where to look next
//
// cursor.go for what a cursor holds, follow.go for the log, archive.go for what has left it.
package stream
