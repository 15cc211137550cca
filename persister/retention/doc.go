// Package retention removes runs when their retention has passed, or at once on request.
//
// # What it is
//
// A [Worker] looks once an hour for runs whose end is longer ago than [Policy] allows, marks them as expired and
// removes their events: rows, blob, and what the log still has. It also removes runs whose session was deleted
// (session.deleted), like a Deleter. A [Deleter] removes one run or one tenant everywhere, and then checks whether
// anything is left. [MakePlan] returns what a Worker would do.
//
// # Contract
//
// A run that has not ended is never removed, unless its session was deleted. A run under a legal hold is never
// removed. The retention of a run begins at its newest event, but not later than the time at which the event was
// stored: a producer whose clock is ahead cannot prolong it.
//
// Runs are marked first, in one transaction with notes of what must be removed (scraps). From then on readers do not
// see them. Then rows are removed, then the blob, then what the log has, and the scrap last. Each step can be
// repeated, so a process that is killed between two of them leaves nothing half visible and nothing behind. An
// expired run leaves a tombstone with its last seq: a reader with an old cursor learns that the run has expired, and
// a follow-up continues its numbers. A deleted run leaves a mark for as long as writes of it may be under way, and
// then nothing.
//
// Rows are removed in bounded transactions with pauses between them, or with their whole partition when no run has
// rows in it any more.
//
// # Concurrency
//
// Any number of processes may run a Worker on one store: one at a time works. Persisters and readers continue
// meanwhile. A run that gets new events at the moment in which it would expire does not expire.
//
// # What it does not do
//
// It does not end runs (reaper.Reaper does), write blobs, or know SQL and NATS.
//
// # Where to look next
//
// docs/retention.md, and persister/expiry.go for what the stores keep.
package retention
