// Package producers is the write side: it numbers events, packs them and stores them exactly once.
//
// # What it is
//
// [Run] writes an agent's turns, messages, model calls, tool calls and children in the framing that all
// dialects need. It ends what is open in one way, whatever happens ([Open]). Its events go to a [Sink].
// [Publisher] is the Sink that an agent holds for one run: asynchronous, packing, fencing. [Appender] is the
// stateless writer behind HTTP: any node, any run, one batch at a time. Both rest on one compare-and-set
// ([Log.Append]) and one way to recover from its failures. [Post] and [Answer] are the request and the reply
// of clients that use neither HTTP nor this library.
//
// # Contract
//
// An event is acknowledged once it is stored in the log. Acknowledged events are never lost, doubled
// or reordered: events of one Publisher, and of one batch, keep their order. seq has no holes,
// whatever fails and whoever else writes to the run. Whoever opens a Publisher on a lane takes it
// over; the former owner gets ErrFenced from then on. A publish whose answer was lost is looked up
// before it is tried again.
//
// # Concurrency
//
// Run, Publisher and Appender are safe for concurrent use. A Publisher runs one goroutine while something
// is unacknowledged and none when idle; Close waits for it.
//
// # What it does not do
//
// It does not know who reads, nor what a provider's stream looks like; see adapters/provider and the
// adapters, adapters/transcript for finished runs, and adapters/proxy for agents that are not changed.
//
// # Where to look next
//
// docs/producers.md is the guide; the examples of this package run. producers/command hands an agent the
// commands of its run; producers/reaper ends runs whose writer is gone; producers/natsjs is the log in
// JetStream; schema.Pack is what is stored.
package producers
