// Package natsjs stores packs in JetStream.
//
// # What it is
//
// [Log] is producers.Log on one stream per partition; [Keys] is producers.Keys on a key-value
// bucket.
//
// # Contract
//
// Every append is one message with a compare-and-set on the whole run, whose filter is built in one
// place (schema.RunFilter): a different spelling in another writer would bypass the check on
// replicated streams. Heads are read from the stream's leader. No Nats-Msg-Id is ever sent: together
// with the compare-and-set its answer depends on the number of replicas.
//
// # Concurrency
//
// Safe for concurrent use. The first append makes one subscription for the answers to all, which ends with the
// connection; nothing here starts a goroutine beside it.
//
// # What it does not do
//
// It does not retry: producers decides that.
//
// # Where to look next
//
// internal/natskit for the layout of the streams.
package natsjs
