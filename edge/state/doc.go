// Package state keeps what was computed from runs between requests, so that a request in the middle of a long run need
// not read it from the beginning.
//
// # What it is
//
// A [Cache] holds runs as readers have read them: stateful projectors of dialects, with copies of them along a run, and
// folds, which snapshots and commands need. One bound in bytes is for all; what was used last stays.
//
// # Contract
//
// Everything here can be computed again from the log: losing it costs time and nothing else. What is kept of a run is
// checked against the first record that the run still has, once a second at most, because a run may expire or be
// deleted and another one may take its id.
//
// # Concurrency
//
// All is safe for concurrent use. One request at a time reads a run on for a reader; others of both wait for it. How
// many read history at once is bounded and shared among tenants, and commands have slots of their own (internal/fair).
// What is kept is shared too: the tenant that has most loses first.
//
// # What it does not do
//
// It does not follow live events, and it decides nothing.
//
// # Where to look next
//
// edge/live, which opens streams from checkpoints; schema.Fold.
package state
