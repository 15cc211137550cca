// Package ordered has a map that remembers in which order its keys came.
//
// # What it is
//
// A [Map] holds what is open of a run: calls, requests, messages that wait. Such things are found by an id, end in any
// order, and the oldest is the one that has to go when there are too many.
//
// # Contract
//
// To find, to set and to delete an entry costs the same however many there are, on average over many. So does First.
// All and Backward cost as much as there are entries. A Map of a few entries has no index. Clone costs nothing until
// one of the two is changed, which then copies its entries once.
//
// # Concurrency
//
// A Map belongs to one goroutine at a time. Clones of one that nobody changes may be made at the same time.
//
// # What it does not do
//
// It has no bound: who uses it says how many entries there may be.
//
// # Where to look next
//
// schema/assemble, whose lanes keep their items in one.
package ordered
