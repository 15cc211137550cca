// Package deadletters has the commands on what the log took and the archive could not store.
//
// # What it is
//
// list prints dead letters, retry tries to store them once more, drop removes them. Dead letters are named by their
// ids, or chosen by filters.
//
// # Contract
//
// A retry takes the way of a message from the log; it can be repeated. drop --all needs a reason and --yes.
// What is printed cannot act on the terminal.
//
// # Concurrency
//
// A command runs in one goroutine. A persister may work at the same time.
//
// # What it does not do
//
// It prints no bodies: they are in the view agent_v_dead_letters. It never writes over what is stored.
//
// # Where to look next
//
// docs/deadletters.md; package persister, Redrive.
package deadletters
