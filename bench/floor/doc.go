// Package floor is what single events cost at least on the product's parts: a server that does with the libraries alone
// what the product must do for each event.
//
// # What it is
//
// [Serve] runs one process. An event comes by net/http, in a POST or as a line of a publish stream. nats.go appends it
// to an embedded nats-server, by compare-and-set on its run, to streams that natskit declares as a new dev server has
// them. Who has appended it writes it to the run's SSE connections, which are hijacked. Only then it is acknowledged.
// Every two seconds pull consumers read what is new in the streams, and one transaction puts it into SQLite
// (modernc.org/sqlite), with the positions that it was read up to.
//
// # Contract
//
// Events of a run are stored, written and numbered in one order. After Serve has returned nil, the archive holds every
// acknowledged event. The monitor of Go's scheduler has the timer slack that the product gives it, where the process
// may set it: without that the product would have an advantage that its parts do not take away. Everything else is as
// the libraries have it.
//
// # Concurrency
//
// Serve returns when all that it has started has ended, but for a publish stream that its client keeps open for more
// than a second. A goroutine for each connection that net/http has, four for each publish stream, one for the archive,
// none for a watcher.
//
// # What it does not do
//
// All that makes a product of it: authentication, validation of JSON and of events, ids of events, keys that make
// requests repeatable, limits, replay, resume, views of detail, heartbeats, WebSockets, child lanes, metrics, and a
// start over what an earlier process has left. The run of a streamed line is read where the load writes it, in the
// first member. A client that does not read holds up its run; one that has gone is noticed when the next event is
// written to it. A POST is answered without content. Each event is appended by itself: what the product saves by
// sending lines of a stream together, floor does not save. The archive has the events with their run and number, and no
// other table or index. It counts no figure: package load and the harness do.
//
// # Where to look next
//
// serve.go for the way of an event, archive.go for the log and the archive; plan.go of the referee for the lines that
// it is measured on.
package floor
