// Package runs reads runs, and their children under their own numbers, from the log and its history.
//
// # What it is
//
// [Runs] finds what an id names ([Runs.Locate]), opens it behind a cursor ([Runs.Open]), and walks its finished steps.
// A [Source] is a run with all its children, or one child; a [Tail] is its live side.
//
// # Contract
//
// A child's events are numbered from 1 in its own stream (native §4.4), by counting them from the log's beginning. An
// id that names nothing wraps fanout.ErrNotFound. A cursor that the run does not have is an error and never the start.
//
// # Concurrency
//
// Runs and Source are safe for concurrent use. A Tail belongs to one goroutine.
//
// # What it does not do
//
// It keeps nothing between calls, does not know who asks, and shapes nothing.
//
// # Where to look next
//
// fanout.Hub below it; edge/live and edge/rest, which read through it.
package runs
