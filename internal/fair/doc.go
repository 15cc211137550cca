// Package fair shares what a process has among its tenants.
//
// # What it is
//
// [Slots] bound how much of one kind of work is under way at once. [Lanes] are two of them: for reads, and for what
// commands need of the same work. [Recent] keeps what was used last, of all tenants together within a bound. A [Quota]
// bounds how many a tenant has of what is kept elsewhere for a while.
//
// # Contract
//
// Whoever holds nothing gets the next slot: a tenant that fills everything it can delays another one by the time after
// which long work yields. A slot beyond a tenant's first is given as long as the tenant leaves as many to others. Of
// those who wait, the tenant with the fewest slots goes first, then the one that was served longest ago; within a
// tenant the order is that of coming. Who stops waiting is out of the queue at once.
//
// What [Recent] lets go is of the tenant that holds most.
//
// # Concurrency
//
// Slots, Lanes and Quota are safe for concurrent use. A Slot belongs to one goroutine. Recent is guarded by its owner.
//
// # What it does not do
//
// It knows no kind of work, and it counts no rates.
//
// # Where to look next
//
// edge/state and edge/runs, whose reads take slots; edge/limits for rates.
package fair
