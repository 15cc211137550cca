// Package runtimev1 has the messages of the runtime protocol, nimi.runtime.v1.
//
// # What it is
//
// The *.proto files beside it are the contract, written from the published protocol's names, numbers and types. The
// other Go files are generated from them by protoc-gen-go.
//
// # Contract
//
// Names, numbers and types are those that clients have compiled in. baseline.json holds them, and a test compares. What
// is generated is what the contract says: go test -update writes it.
//
// # Concurrency
//
// Messages are values: one goroutine writes one.
//
// # What it does not do
//
// It has no services: package edge serves paths. Messages that are streamed by the thousand are not built of it but
// encoded by protocols/nimi.
//
// # Where to look next
//
// docs/dialects/runtime.md, protocols/nimi.
package runtimev1
