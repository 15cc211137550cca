// Package publish is the command that publishes files into a run.
//
// # What it is
//
// It reads events, recorded answers of model providers and transcripts, recognises which of them a file holds, and
// sends batches to a server.
//
// # Contract
//
// Requests have idempotency keys: what is sent again is stored once. Payload bytes of events are not changed. What was
// acknowledged before a failure stays stored, and the error names up to where. A run that was begun here is ended.
//
// # Concurrency
//
// One goroutine reads, one sends; one request is under way at a time.
//
// # What it does not do
//
// It does not decode providers' streams: see the packages below producers.
//
// # Where to look next
//
// publish.go for the command; formats.go for the table of formats; send.go for batches.
package publish
