// Package schematest has the named runs that every other test uses.
//
// # What it is
//
// A [Scenario] is a run as its producer sends it: events with type, child and payload, not yet numbered. [Packs] turns
// it into what a log holds, [Lines] and [Records] into what a reader sees. [Short] reads one from text. [Generate]
// makes long runs of any size, with hostile payloads among them.
//
// # Contract
//
// Everything is deterministic: the same arguments produce the same bytes, in every process and for
// ever, so that goldens can be compared. Every scenario is accepted by schema.Event.CheckNew and by
// schema.Head.Advance, and every payload fits the catalogue's JSON Schema. A change to a scenario
// changes goldens of other packages.
//
// # Concurrency
//
// Functions are safe to call from many goroutines; each call returns values of its own.
//
// # What it does not do
//
// It holds no assertions, but that a scenario is valid, and knows no broker, no database and no wire protocol.
//
// # Where to look next
//
// schema/testdata has the goldens.
package schematest
