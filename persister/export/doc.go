// Package export writes runs to files: JSONL with the lines of the stream, and Parquet tables for analytics.
//
// # What it is
//
// [Run] reads the runs of a [Selection] from a [Source], which is a store, and writes them to a [Target]: a folder, one
// file, or a writer. JSONL has the events' own lines. Parquet has one of four tables: events, messages, tool_calls,
// runs.
//
// # Contract
//
// A line of JSONL and the column payload of the table events are the bytes that the producer wrote. Columns extracted
// from a payload are decoded text, in which an unpaired surrogate becomes U+FFFD. Rows are ordered by tenant, run and
// seq within a file. A file gets its name when it is complete. In a folder only files listed in manifest.jsonl belong
// to the export: it is written after each file, so that an interrupted export can be resumed at the next file. A hook
// reports events that are missing at the beginning or end of a run. Errors wrap ErrManifest when the folder belongs to
// another selection.
//
// Memory does not grow with the length of a run: at most 1 MiB or so of events, 32 MiB of a row group, and 64 MiB of
// open messages and tool calls, of which the largest is cut in two then. The names of up to 50,000 runs are held at a
// time, and with Resume those of all runs in the manifest.
//
// # Concurrency
//
// At most one Run per folder at a time. Run starts nothing that outlives it, and calls hooks from its goroutine.
//
// # What it does not do
//
// It reads no file back, deletes none, and knows neither the command line nor a database.
//
// # Where to look next
//
// docs/export.md for the columns; cmd/agentstream for the command.
package export
