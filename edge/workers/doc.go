// Package workers lets agents that speak HTTP answer sessions, as programs in Go do with producers/worker.
//
// # What it is
//
// A [Seat] is the connection of one agent with a number of places. While a tenant has seats on this node, the node is a
// worker of that tenant: it follows the log, opens sessions and begins turns. It hands each turn to a seat, as a task.
// The agent writes the answer with ordinary appends for the task's lease, at any node, and ends the turn in one pack
// with commands.taken.
//
//	log ─▶ Follow ─▶ worker.Worker ─▶ turn ─▶ a seat with a free place ─▶ frames ─▶ the agent
//	 ▲                                                                                 │
//	 └──────────────── appends for the lease (producers.AppendOptions.Owner) ◀─────────┘
//
// # Contract
//
// It is that of producers/worker: each message is answered at least once and settled once, no session by two at a time.
// A seat that leaves gives its tasks up: another seat, of any node, gets their messages again within the seconds after
// which Follow hands a pack over again, and the lease of the one that left ends with that.
//
// # Concurrency
//
// All is safe for concurrent use. The last seat of a tenant that leaves waits until what was started for it has
// returned.
//
// # What it does not do
//
// It knows no HTTP, and does not check who a caller is.
//
// # Where to look next
//
// docs/workers.md for those who write agents; docs/decisions/0068-workers-over-http.md for why.
package workers
