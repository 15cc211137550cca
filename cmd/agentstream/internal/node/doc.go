// Package node is an edge as dev and the edge role run it, and what all roles need of log and database.
//
// # What it is
//
// Node joins log, hub, appender and server. ListenFlags say where and for whom it serves. Around them stand the checks
// of readiness, the wait for migrate, limits of tenants, the reaper, and what guards the embedded log: DiskMonitor and
// pace.
//
// # Contract
//
// New opens what it needs and serves nobody; the parts of Stages do. Config.Archive and Config.Runs may be nil.
// A role that starts before migrate waits, is alive and not ready.
//
// # Concurrency
//
// A Node's parts run at the same time. Config is read by New alone.
//
// # What it does not do
//
// It has no protocol and no storage: see packages edge, fanout and persister.
//
// # Where to look next
//
// node.go for the wiring; await.go for the start.
package node
