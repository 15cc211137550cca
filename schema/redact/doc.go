// Package redact hides texts in events by the rules of their tenant, before the events are stored.
//
// # What it is
//
// [Parse] reads the rules of all tenants from a file ([Book]), [Open] keeps such a file in force while it changes ([File]).
// The rules of one tenant ([Rules]) look for known secrets, for expressions of their own, and at paths of payloads.
// [Rules.Batch] applies them to events on their way to the log, [Rules.Event] to one that is stored already.
//
// # Contract
//
// What is found is replaced by [redacted:RULE], numbers by 0. JSON stays valid, the number and order of events and all ids of
// the framing stay as they are, and an event in which nothing was found keeps its bytes. A changed event has the field
// "redacted" in its envelope, with rule and count. The same events give the same result.
//
// A secret that is divided over the deltas of one block is found where the deltas come in one batch, or in several that
// the same [Trail] has passed. The events of a batch may end in what could be the beginning of a secret: Batch reports it,
// and whoever can wait gives them again together with what follows.
//
// # Concurrency
//
// Book, Rules and File are safe for concurrent use. A Trail is a value that its owner replaces.
//
// # What it does not do
//
// It knows no log, no tables and no metrics. It decodes no base64, and looks into JSON within a string as text.
//
// # Where to look next
//
// docs/redaction.md says what is covered. known.go has the known secrets, trail.go the deltas.
package redact
