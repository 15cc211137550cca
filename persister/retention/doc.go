// Package retention removes runs when they have been kept for as long as was promised, or at once when
// somebody asks for it.
//
// # What it is
//
// A [Worker] looks once an hour for runs that are over for longer than [Policy] keeps them, marks them as
// expired and removes their events: rows, blob, and what the log still has. Runs whose session was deleted
// (session.deleted) it removes like a Deleter. A [Deleter] removes one run or one tenant everywhere, and looks
// afterwards whether anything is left. [Plan] says what a Worker would do.
//
// # Contract
//
// A run that has not ended is never touched, unless its session was deleted; one under a legal hold never. A run that has ended counts
// from its newest event, but not from later than the store took it in: a producer's clock that is ahead keeps
// nothing alive.
//
// What goes is marked first, in one transaction with a note of what is to be removed (a scrap). From then on
// nothing of it is given out. Then rows go, then the blob, then what the log has, and the scrap last. Each step
// can be done again, so a process that is killed between two of them leaves nothing half served and nothing
// forgotten. An expired run leaves a tombstone: its last number, so that a cursor of it is told that it has
// expired, and that a follow-up is numbered on. A deleted run leaves a mark, for as long as something of it
// may be under way, and then nothing.
//
// Rows go in bounded transactions with pauses between them, or with their whole partition when no run has
// rows in it any more.
//
// # Concurrency
//
// Any number of processes may run a Worker on one store: one at a time works. Persisters and readers go on
// meanwhile; a run that goes on in the moment in which it would expire does not expire.
//
// # What it does not do
//
// It does not end runs (producers.Reaper does), write blobs, or know SQL and NATS.
//
// # Where to look next
//
// docs/retention.md, and persister/expiry.go for what the stores keep.
package retention
