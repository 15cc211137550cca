// Package retention has the commands that remove runs, and the flags of the roles that do so all the time.
//
// # What it is
//
// retention (plan, run, show, set, clear), hold (add, list, remove), delete (run, tenant), and RetentionFlags for dev
// and persist.
//
// # Contract
//
// plan changes nothing. A hold keeps what it names from everything else here. delete asks for the name, or takes --yes,
// and looks at the end whether anything is left.
//
// # Concurrency
//
// A command runs in one goroutine. What RetentionFlags start runs beside the persister.
//
// # What it does not do
//
// What is due is decided by package persister/retention.
//
// # Where to look next
//
// docs/retention.md; commands.go, hold.go and delete.go.
package retention
