// Package state keeps what was computed from runs between requests, so that a request in the middle of a long run need
// not read it from the beginning.
//
// # What it is
//
// [Checkpoints] are copies of stateful projectors along runs. [Folds] are the folds of runs, which snapshots and commands
// need. Both are caches with a bound in bytes, of the runs used last.
//
// # Contract
//
// Everything here can be computed again from the log: losing it costs time and nothing else. What is kept of a run is
// checked against the first record that the run still has, once a second at most, because a run may expire or be deleted
// and another one may take its id.
//
// # Concurrency
//
// All is safe for concurrent use. One request at a time reads a run on; others of that run wait for it. At most eight
// read history at once.
//
// # What it does not do
//
// It does not follow live events, and it decides nothing.
//
// # Where to look next
//
// edge/live, which opens streams from checkpoints; schema.Fold.
package state
