// Package publish takes lines of many runs from one client and answers them with receipts.
//
// # What it is
//
// A [Stream] is one client that publishes: a request body, a WebSocket, a bidirectional call. What carries it feeds it
// bytes, and delivers what it answers. Each line is one event that names its run.
//
//	bytes ─▶ lines ─▶ the run's queue ─▶ a worker, while runs have work ─▶ Store ─▶ receipts
//
// # Contract
//
// Lines of a run are stored in their order. What has come for a run when a worker gets to it goes into one pack. Runs
// do not wait for each other. Every line is answered once, by a receipt or by a refusal, in the order of its run. After
// trouble of the log with a run, the lines of that run are refused until the stream ends, so that none overtakes
// another.
//
// Lines that are not answered, and answers that are not delivered, are bounded: Feed waits, and reads no further.
//
// # Concurrency
//
// One goroutine feeds a Stream. Up to Config.Workers goroutines store, while there is work; one delivers, while there
// are answers. None does anything for the stream when Finish has returned. Those that store are shared by all streams
// of a configuration; one that nobody needs ends within 200 ms. A stream on which nothing happens has none.
//
// # What it does not do
//
// It does not read connections, and does not decode events: Store does.
//
// # Where to look next
//
// edge/rest for Lines, which stores, and for the routes; docs/decisions/0048-publish-streams.md.
package publish
