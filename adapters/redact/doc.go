// Package redact takes the credentials of a request out of what is recorded of its answer.
//
// # What it is
//
// [Of] makes a [Filter] of a request's headers and query: of every value that is not known to be harmless. The filter
// hides these values in events and in texts.
//
// # Contract
//
// A value is found as it is, in base64, and escaped for JSON, JavaScript, URLs and HTML, up to four times, and also
// where it is divided between the pieces of a block's text. A piece that ends like the beginning of a value waits for
// the next one of its block, or for the block's end. All other text stays byte for byte as it was. Values under 6
// bytes are not looked for.
//
// # Concurrency
//
// A Filter belongs to one goroutine at a time.
//
// # What it does not do
//
// It knows no rules for texts: what is no credential of the request stays, whatever it looks like.
//
// # Where to look next
//
// secrets.go is what is looked for, filter.go how. adapters/proxy uses it.
package redact
