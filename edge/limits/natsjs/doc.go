// Package natsjs carries between edges what tenants have used, over NATS.
//
// # What it is
//
// [Bus] is a limits.Bus on one subject of core NATS, agent.limits, which no stream keeps.
//
// # Contract
//
// A message goes to all edges that are connected at that moment, or is lost. The next one makes up for it.
//
// # Concurrency
//
// Safe for concurrent use. Messages are received one at a time, on a goroutine of the client library.
//
// # What it does not do
//
// It does not look into messages, and does not wait for anybody.
//
// # Where to look next
//
// edge/limits, which says what is told.
package natsjs
