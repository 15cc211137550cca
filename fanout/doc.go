// Package fanout is the read side: it joins what is stored with what is being stored, so that a
// reader gets every event after its cursor once, in order, and then the rest as it happens.
//
// # What it is
//
// [Hub] holds one [topic] per watched run: interest at the broker, the newest packs, and the head. Beside
// them it has one cache of the pages of history that were read last, of all runs: a reader that wants what
// another one is reading waits for that page instead of reading it again.
// [Subscription] is one reader's position. [History] and [Tail] are what the hub reads from.
//
// # Contract
//
// A subscription is either replaying or live, and falling out of live is not an error but a return
// to replay. A resume, a lost copy, a slow reader and a reconnect of the broker are the same thing:
// read history after the last number delivered. Seq decides everything: the next number is
// delivered, a smaller one has been seen, a larger one is a hole, and no reader ever receives what lies
// after a hole. What cannot be had is an error that names the decision: gone for good (ErrExpired),
// or come back (ErrUnavailable). What precedes the ring is read once for all who come together, as far
// as it is worth keeping.
//
// # Concurrency
//
// Hub is safe for concurrent use. A Subscription has one user at a time. Readers of a live run take
// no lock and copy nothing: they load the topic's current view, which is never changed afterwards.
// Readers of history take the cache's lock once per page. Memory is bounded per watched run (the ring),
// for all runs (the cache), and per replaying reader (one page, and what its walk has fetched ahead).
//
// # What it does not do
//
// No shaping, no filters, no children's own numbers, no wire format, no authorization: the edge does. It
// writes nothing.
//
// # Where to look next
//
// topic.go for the seam, cache.go and cached.go for the pages, fanout/natsjs for JetStream, fanouttest for what is
// promised of both.
package fanout
