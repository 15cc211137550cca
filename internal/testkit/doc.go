// Package testkit starts the real parts that tests run against.
//
// # What it is
//
// [NATS] is an embedded server with file store and the log's streams declared; Postgres a private
// PostgreSQL with a fresh database; S3 a private object store with an empty bucket.
//
// # Contract
//
// What a test asked for is gone when the test ends. A part that is missing on the machine fails the
// test where CI is set and skips it loudly elsewhere.
//
// # Concurrency
//
// Safe to call from parallel tests.
//
// # What it does not do
//
// No fakes: those live with the interfaces they implement. Nothing here is imported outside tests.
//
// # Where to look next
//
// fanout/fanouttest and persister/persistertest for the conformance suites.
package testkit
