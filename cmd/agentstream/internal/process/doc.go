// Package process is what the servers of this binary share, whatever they serve.
//
// # What it is
//
// Stages and their end (RunStages), the operators' listener (Admin), the instruments (Metrics), the limit of memory
// (MemoryFlags, Budget), and the listener that keeps descriptors free for the process (LimitListener).
//
// # Contract
//
// RunStages ends a stage when everything in the stage before it has returned, and returns all errors. Metrics registers
// with a registry of its own: nothing is global, except for GOGC and GOMEMLIMIT, which MemoryFlags sets.
//
// # Concurrency
//
// Metrics and what Admin serves are safe for concurrent use. LimitListener.Accept is for one goroutine.
//
// # What it does not do
//
// It does not know what a role serves, and opens neither log nor database.
//
// # Where to look next
//
// stages.go for the order in which a process ends; metrics.go for the names of instruments.
package process
