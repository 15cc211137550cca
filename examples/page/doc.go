// Command page serves a page in one HTML file that shows a run, without any library.
//
// # What it is
//
// index.html is the page. Start a server that lets it in, then serve the page:
//
//	bin/agentstream dev --cors-origin http://127.0.0.1:3000
//	go run ./examples/page
//
// # Contract
//
// A reload shows the same run, whole. A connection that breaks continues where it was.
//
// # Concurrency
//
// A browser has one stream for each page.
//
// # What it does not do
//
// It has no credentials, and it does not look for gaps in the numbers: the TypeScript client does both.
//
// # Where to look next
//
// docs/tutorial.md has a page with the client; clients/ts/README.md; docs/dialects/native.md.
package main
