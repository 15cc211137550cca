// Package audit keeps the trail of what people and programs did with a tenant's runs: who opened which, who decided,
// cancelled, shared, exported and deleted, and who was refused.
//
// # What it is
//
// A [Trail] appends lines to one run of the log for each tenant, the tenant's audit feed ([FeedOf]). The feed is of a
// tenant of its own, which no credential is for ([IsReserved]): what reads, lists, taps or searches the runs of a
// tenant does not meet it, and what is done to that tenant's runs does not touch it. Each line is an event
// custom.audit.* ([Line]); it holds names and numbers, and neither payloads nor credentials.
//
// # Contract
//
// [Trail.Record] returns when the log has the line, or says that it has not: such a line is kept and tried again. A
// repeat of an action that has an id has one line. [Trail.Open] and [Trail.Refuse] never wait. What they are told is in
// the log some seconds later, also when the log was away meanwhile, up to the bounds of memory; beyond them lines are
// merged into one with their number, so the sum of the counts is what has happened. A process that is killed loses what
// it has not written yet: a few seconds of openings and refusals.
//
// Openings of one run by one caller are one line an hour for each node.
//
// # Concurrency
//
// A Trail is safe for concurrent use. A nil Trail records nothing.
//
// # What it does not do
//
// It does not decide what is an action: package edge and the routes do. It keeps no archive: the feed is archived like
// any run, and never expires by itself.
//
// # Where to look next
//
// trail.go; docs/audit.md for who reads the feed.
package audit
