// Package archive opens the archive for commands and roles, and has the commands on objects.
//
// # What it is
//
// OpenStore opens the tables, in PostgreSQL or in the folder of a dev server. BlobFlags open the store of objects. Join
// makes one history of both. The commands list, verify, run and audit work on objects; doctor compares the log with the
// archive.
//
// # Contract
//
// What is opened is not created and not migrated. Errors name the flag that is wrong and repeat no password.
// A command that finds damage returns an error.
//
// # Concurrency
//
// A Store is safe for concurrent use. A command runs in one goroutine.
//
// # What it does not do
//
// It stores nothing itself: see package persister and its adapters.
//
// # Where to look next
//
// store.go for what a store is to its users; commands.go and doctor.go for the commands.
package archive
