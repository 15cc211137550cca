// Package limits counts what tenants send and refuses what is over their limits.
//
// # What it is
//
// A [Limiter] holds a [Meter] for each tenant that has sent something lately; [Limit] is what a tenant may send.
//
// # Contract
//
// What a second allows may be used at once. A request is taken as long as anything is left, whatever its size, and what
// it takes too much is made up for by those after it. A refusal says when the same would be taken.
//
// # Concurrency
//
// All is safe for concurrent use. A nil Limiter does not limit.
//
// # What it does not do
//
// It knows one node: limits of several nodes add up.
//
// # Where to look next
//
// edge/protocol, which meters routes; docs/operations.md for the settings.
package limits
