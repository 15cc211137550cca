// Package reaper ends runs whose writer is gone.
//
// # What it is
//
// [Reaper] looks at runs that have been silent for long, asks their owners whether they are there, and closes
// what is open in those whose owner does not answer. A [Lister] names the runs, a [Witness] asks the owners.
//
// # Contract
//
// A run is ended only after the event that its silence began with: a writer that writes meanwhile keeps the
// run, and one that writes afterwards gets producers.ErrFenced. Any number of reapers may run at once.
//
// # Concurrency
//
// A Reaper may be used by one goroutine at a time. Within a round it looks at several runs side by side.
//
// # What it does not do
//
// It does not know where the list of runs comes from, nor how an owner is asked.
//
// # Where to look next
//
// producers.Open for the events of an ending; producers/natsjs for a Witness.
package reaper
