// Package projection makes the rows that the SQL views read from the events of runs.
//
// # What it is
//
// [Frames] collects rows about messages, calls of tools and usage, and yields the statements that store them.
// [Frames.Suspect] finds frames that may say once more what their lanes have, and [Lane.Reread] takes the rows of such
// frames away. [SelectAskEvents] and [UpdateAsks] are the statements for open questions. Package postgres uses both
// when it stores events, and package tables when a migration fills new tables from old events.
//
// # Contract
//
// The rows depend on the stored events alone, not on the order in which they arrived: the statements also correct rows
// that were stored before. A payload in an unexpected form leads to empty columns, never to an error.
//
// # Concurrency
//
// A Frames belongs to one goroutine.
//
// # What it does not do
//
// It opens no transaction, and it does not know which events are new.
//
// # Where to look next
//
// docs/sql.md for the views.
package projection
