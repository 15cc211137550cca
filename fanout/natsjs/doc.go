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
// once; Lost reports when some may be missing.
//
// # Concurrency
//
// Safe for concurrent use. Run routes copies from one goroutine; without it nothing arrives live.
// The connection's error handler is taken over (and chained), to learn of overflows.
//
// # What it does not do
//
// It joins nothing and caches nothing: fanout.Hub does.
//
// # Where to look next
//
// internal/natskit for the reads themselves.
package natsjs
