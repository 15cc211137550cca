// Package natsjs reads the log in JetStream.
//
// # What it is
//
// [Log] is fanout.History by batched direct get and fanout.Tail by core subscriptions to the copies
// that the streams republish.
//
// # Contract
//
// No consumer is ever created: the broker's cost per watched run is one subscription, per viewer
// nothing. History pages insist on the server's end marker, and what a lagging replica does not have
// is read from the leader, so a walk that ends without an error is complete. Copies come at most
// once; Lost reports when some may be missing. Copies that the writer of this process takes are passed over (Skip).
//
// # Concurrency
//
// Safe for concurrent use. Copies are routed by the goroutine that reads their connection, or, where
// there is no natskit.WireTap to take them, by that of Run. The connection's error handler is taken over
// (and chained), to learn of overflows.
//
// # What it does not do
//
// It joins nothing and caches nothing: fanout.Hub does.
//
// # Where to look next
//
// internal/natskit for the reads themselves.
package natsjs
