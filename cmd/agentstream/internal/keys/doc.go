// Package keys has the commands on the keys that content of tenants is encrypted with.
//
// # What it is
//
// keys create, rotate, delete and list, on any key service (package internal/keyservice).
//
// # Contract
//
// What changes a key has a line in the audit feed of its tenant, before it is done; where the log cannot be reached the
// command says that there is none. No key is ever printed.
//
// # Concurrency
//
// A command runs in one goroutine.
//
// # What it does not do
//
// It encrypts and opens nothing.
//
// # Where to look next
//
// docs/encryption.md; keys.go.
package keys
