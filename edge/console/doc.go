// Package console is the page in which people watch runs and steer them.
//
// # What it is
//
// [Handler] serves static files that are part of the program: HTML, CSS, ES modules, and the compiled form of the
// project's TypeScript client. All that the page shows comes from the same requests that every client may make.
//
// # Contract
//
// The files are served below /console/ with an ETag of their content and a Content-Security-Policy that allows scripts,
// styles and connections of this server alone, no inline script, and Trusted Types without a policy: the page can make
// no HTML from text. They need no credential; what the page asks for does.
//
// # Concurrency
//
// The handler is safe for concurrent use.
//
// # What it does not do
//
// It keeps no state and knows no user. A token that a person enters stays in the browser's tab.
//
// # Where to look next
//
// static/app.js opens the screens; static/lib is clients/ts, compiled (make console writes it, TestClientIsCurrent
// compares it); docs/console.md is for people who use it.
package console
