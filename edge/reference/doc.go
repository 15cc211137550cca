// Package reference serves the contracts, and a page on which people read them.
//
// # What it is
//
// [Handler] answers /openapi.yaml, /asyncapi.yaml and /reference, a page with every operation: what it takes, what it
// answers, and a command that asks it.
//
// # Contract
//
// The page is made once, of the same document, and has no script. Its Content-Security-Policy allows its own style
// sheet and nothing else. No credential is needed.
//
// # Concurrency
//
// The handler is safe for concurrent use.
//
// # What it does not do
//
// It sends no request for the reader.
//
// # Where to look next
//
// schema/contracts has the files; page.html is the page.
package reference
