// Package sink has the places where taps deliver: files, webhooks, databases, brokers.
//
// # What it is
//
// Open makes a tap.Receiver of an address. Each kind is one file: lines.go, webhook.go, postgres.go, nats.go, kafka.go,
// clickhouse.go, otlp.go.
//
// # Contract
//
// A batch that Write has returned for is stored as the other side stores. Each event carries its key, tenant/run/seq,
// in the form that drops what comes twice: a primary key, a message id, a deduplication token. No error and no text
// names a password.
//
// # Concurrency
//
// Sinks are safe for concurrent use. They start no goroutine that outlives Close.
//
// # What it does not do
//
// It keeps no place and no dead letters, and does not wait for a side that is away: package tap does.
//
// # Where to look next
//
// open.go for the addresses and their options.
package sink
