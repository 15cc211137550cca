// Package shape decides what of a run one kind of client is shown, and when (native §4 R1 to R4).
//
// # What it is
//
// A [Filter] leaves events out. A [Folder] merges neighbouring deltas, as fast as they come: for
// replay, and for clients that lag, which it may spare deltas as well. A [Pacer] does the same for
// live streams against a clock: at most ten delta events a second. All turn records of the log into
// records of a view.
//
// # Contract
//
// Nothing is reordered, ever. A record that stands for several has the id, time and seq of its last
// member and first_seq of its first; events that a filter hides count as members of the next one that
// is shown. So in every view the next record's first is the last one's seq + 1, and a client that
// finds it otherwise has lost something: what [Folder.Drop] takes away is such a gap, is counted, and is
// reported by [Folder.Tell].
//
// Deltas are merged when they are neighbours of one type and child, with a text that belongs to the same
// place (schema.CommonFields). Texts are joined as they are written, escapes and all; of other fields
// those stay that all have alike. Everything else goes at once, behind what was pending. Nothing waits
// for longer than [Patience].
//
// With Bundle, deltas of different lanes that wait together become one event of type
// [BundleType], whose parts each hold one lane's text. It exists because lanes that speak at the same
// time have few neighbours: without it order beats the limit (docs/decisions/0014-shaping.md).
//
// # Concurrency
//
// All types belong to one goroutine at a time. What they return may be shared; it is never changed.
//
// # What it does not do
//
// It has no clock, no timer and no goroutine: callers say what time it is. It does not know clients.
//
// # Where to look next
//
// edge/live/view.go, which shares a Pacer between all watchers of a view.
package shape
