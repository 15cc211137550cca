// Package workertest runs a worker on a real log for tests of those who answer.
//
// # What it is
//
// [New] starts a [Shop]: an embedded NATS server with the log's streams, and a worker that answers what is asked there.
// [Echo] is an answer that repeats the question.
//
// # Contract
//
// A method of Shop ends the test when it fails. What New has started is gone when the test ends.
//
// # Concurrency
//
// A Shop belongs to the test that started it.
//
// # What it does not do
//
// It has no fakes: producers/producerstest has a log that loses packs.
//
// # Where to look next
//
// The tests of adapters/model and protocols/nimi/answer.
package workertest
