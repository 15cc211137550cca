// Package contracts holds the files that programs outside this tree may rely on, as parts of the program.
//
// # What it is
//
// OpenAPI describes all routes that are served, AsyncAPI what taps read from NATS. README.md lists the other files.
//
// # Contract
//
// What the running code does and what the files say is compared by tests, both ways.
//
// # Concurrency
//
// There is no state.
//
// # What it does not do
//
// It does not read the documents.
//
// # Where to look next
//
// edge/reference serves them.
package contracts
