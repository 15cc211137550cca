// Package export is the command that writes runs out of the archive into files.
//
// # What it is
//
// It chooses runs, opens the archive with its objects, shows progress and calls package persister/export.
//
// # Contract
//
// No file is written over, except by --resume. A run that the archive has not whole is an error, after all others were
// written.
//
// # Concurrency
//
// The command runs in one goroutine.
//
// # What it does not do
//
// It does not know formats: see package persister/export.
//
// # Where to look next
//
// docs/export.md for the command; export.go for how flags become a configuration.
package export
