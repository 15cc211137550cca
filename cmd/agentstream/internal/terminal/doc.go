// Package terminal writes for people: text that is safe to print, and a line of progress.
//
// # What it is
//
// Sanitize, Clip and Shorten make text from outside printable. Screen is what is known of the output.
// Meter draws one line of progress and keeps notices out of it.
//
// # Contract
//
// Nothing that Sanitize returns can move the cursor, change colours or turn the reading direction round.
// A Meter draws on terminals alone, not before a second, and at most ten times a second.
//
// # Concurrency
//
// A Meter is safe for concurrent use, except for Progress, which is for one goroutine. All else is pure.
//
// # What it does not do
//
// It does not know runs, events or commands.
//
// # Where to look next
//
// text.go for what is not printed as it is; meter.go for progress.
package terminal
