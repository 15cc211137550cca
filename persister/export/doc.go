// Package export writes runs into files for people and for analytics: JSONL as the stream gives it, and
// Parquet tables.
//
// # What it is
//
// [Run] walks the runs that a [Selection] names, oldest names first, through a [Source], which is a
// store, and writes them to a [Target]: a folder, one file, or a writer. JSONL is the events' own lines.
// Parquet is one of four tables: events, messages, tool_calls, runs.
//
// # Contract
//
// A line of JSONL and the column payload of the table events are the bytes that the producer wrote.
// Columns that are taken out of a payload are decoded text: half a surrogate becomes U+FFFD there. Rows
// are ordered by tenant, run and seq within a file. A file appears under its name when it is whole, and in
// a folder only what manifest.jsonl names belongs to the export: it is written behind each file, so that
// an export that was broken off can be resumed at the file where it stood. What a run lacks at its
// beginning or end is told by a hook and never silent. Errors wrap ErrManifest when the folder does not
// fit the question.
//
// Memory does not grow with the length of a run: events are held by the megabyte, a row group at most 32
// MiB, open messages and tool calls at most 64 MiB before the greatest is cut in two. The names of up to
// 50,000 runs are held at a time, and with Resume those of all that are in the manifest.
//
// # Concurrency
//
// One Run per folder at a time. Run starts nothing that outlives it; hooks are called from its goroutine.
//
// # What it does not do
//
// It reads no file back, deletes none, and knows neither the command line nor a database.
//
// # Where to look next
//
// docs/export.md for the columns; cmd/agentstream for the command.
package export
