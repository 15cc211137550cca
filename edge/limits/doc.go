// Package limits counts what tenants send and refuses what is over their limits.
//
// # What it is
//
// A [Limiter] holds a [Meter] for each tenant that has sent something lately; [Limit] is what a tenant may send.
// [Peers] tell each other over a [Bus] what tenants have used at each node.
//
// # Contract
//
// What a second allows may be used at once. A request is taken as long as anything is left, whatever its size, and what
// it takes too much is made up for by those after it. A refusal says when the same would be taken.
//
// Rates are those of all peers together: over half a minute what a tenant gets is within a tenth of its rate, wherever
// it sends. What was too much at first is made up for. No request waits for another node. A node that is cut off counts
// what it takes itself, and after it is back what others take from then on.
//
// # Concurrency
//
// All is safe for concurrent use. A nil Limiter does not limit. Peers.Run ends with its context.
//
// # What it does not do
//
// Requests at once are those of one node: those of several nodes add up. It does not store what was used.
//
// # Where to look next
//
// edge/protocol, which meters routes; edge/limits/natsjs, the Bus; docs/limits.md for the settings.
package limits
