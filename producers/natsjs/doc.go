// Package natsjs stores packs in JetStream, and takes what agents publish over NATS.
//
// # What it is
//
// [Log] is producers.Log on one stream per partition; [Keys] is producers.Keys on a key-value
// bucket. [Inbox] takes messages with events from any NATS client and answers as JetStream would
// (docs/nats-ingest.md). Log is also what wakes command.Reader (Watch), and how writers say, and
// reapers ask, that a writer is there (Attend, Ask).
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
// connection. An Inbox has a goroutine for each run with messages that wait, and a few that wait for the next run;
// Run returns when all have ended. Nothing else here starts one.
//
// # What it does not do
//
// It does not repeat appends: producers decides that. Reads and the bucket are repeated until the context ends. An
// Inbox decodes nothing: whoever appends for it does.
//
// # Where to look next
//
// internal/natskit for the layout of the streams.
package natsjs
