// Package backoff waits between attempts.
//
// # What it is
//
// [Delay] returns how long to wait before the next attempt, [Sleep] waits that long.
//
// # Contract
//
// Delays grow from base to a cap and have full jitter, so that callers that collide part. Sleep ends early
// when its context does.
//
// # Concurrency
//
// Both functions are safe for concurrent use and start no goroutine.
//
// # What it does not do
//
// It does not decide whether an attempt is worth repeating, and counts none.
//
// # Where to look next
//
// producers/writer.go is a typical user.
package backoff
