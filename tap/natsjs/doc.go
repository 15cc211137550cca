// Package natsjs keeps the places, the specifications and the dead letters of taps in a key-value bucket of JetStream.
//
// # What it is
//
// Places is tap.Places and tap.Letters on natskit.TapsBucket. Its keys:
//
//	tap.<name>               what the tap was asked for
//	place.<name>.<stream>    how far it has come in a partition
//	ledger.<name>.<stream>   where in each run it was a moment ago
//	dead.<name>.<hash>       a dead letter
//	tenant.<tenant>.<name>   what a client over HTTP has acknowledged
//
// # Contract
//
// A place is moved by compare-and-set. What is answered is stored as the bucket stores.
//
// # Concurrency
//
// Places is safe for concurrent use, also by many processes.
//
// # What it does not do
//
// It does not read the log: see persister/natsjs.
//
// # Where to look next
//
// places.go
package natsjs
