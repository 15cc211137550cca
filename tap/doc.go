// Package tap delivers the events of all runs to a sink: a file, a webhook, a database.
//
// # What it is
//
// A Tap is a persister.Persister whose store is a Sink. So it fetches, shares partitions with other members of its
// name, takes over, retries and bounds its memory as the persister does. What the sink has is kept in Places, as one
// offset for each partition.
//
//	log ─▶ persister.Queue ─▶ persister.Persister ─▶ store ─▶ Sink
//	                                     archive ──▶ fill ──┘ └─▶ Places: offset, ledger, dead letters
//
// # Contract
//
// Each event reaches the sink at least once, those of a run in the order of their seqs. Key is the same each time, so a
// sink that writes by key has each event once. Events that have left the log are read from the archive. What a sink
// refuses for good is kept as a dead letter. A sink that fails makes its own tap wait, and nobody else.
//
// # Concurrency
//
// Run is called once. A Sink is written to by one goroutine for each partition.
//
// # What it does not do
//
// It filters by type after it has read: a pack has events of many types. It knows no broker and no database: see the
// folders below it.
//
// # Where to look next
//
// store.go for the order in which places move; fill.go for what has left the log; tap/sink for the sinks.
package tap
