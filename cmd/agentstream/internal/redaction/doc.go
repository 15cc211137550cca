// Package redaction is the command that checks rules of redaction, and tries them on what is stored.
//
// # What it is
//
// redact --check FILE reads a file of rules as servers do. redact --dry-run applies the rules to archived runs and counts
// what they find.
//
// # Contract
//
// Nothing is changed anywhere. No text that was found is printed.
//
// # Concurrency
//
// A command runs in one goroutine.
//
// # What it does not do
//
// It does not know what rules look for: see package schema/redact.
//
// # Where to look next
//
// docs/redaction.md; redact.go.
package redaction
