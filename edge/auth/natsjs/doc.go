// Package natsjs keeps stream tickets in a JetStream bucket, for all edges together.
//
// # What it is
//
// [Tickets] is an auth.TicketStore on the bucket AGENT_TICKETS. It lies in memory: a ticket that is
// lost with the servers is asked for again.
//
// # Contract
//
// A ticket is read from the bucket's leader, because a replica may not have it yet, and taken by a
// purge that names the revision that was read. The server lets one such purge through. A purge whose
// answer is lost counts as lost: nobody is let in.
//
// # Concurrency
//
// Safe for concurrent use, from many nodes.
//
// # What it does not do
//
// It knows no ticket, only its hash. It does not look into records.
//
// # Where to look next
//
// edge/auth/tickets.go, which issues and redeems.
package natsjs
