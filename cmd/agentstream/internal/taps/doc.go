// Package taps has the commands on taps.
//
// # What it is
//
// RunCmd is one member of a tap: it reads the log, and the archive where events have left the log, and writes to sinks.
// The others list taps, remove them, and show, retry and drop their dead letters.
//
// # Contract
//
// Errors name the flag that is wrong and repeat no password.
//
// # Concurrency
//
// A command runs in one goroutine. A member's metrics are safe for concurrent use.
//
// # What it does not do
//
// It delivers nothing itself: see package tap.
//
// # Where to look next
//
// run.go; manage.go for what is about all members.
package taps
