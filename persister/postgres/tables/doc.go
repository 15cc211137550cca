// Package tables creates and changes the tables of package postgres.
//
// # What it is
//
// [Migrate] brings the tables up to date from embedded migrations, most of them SQL and some of them Go. [CheckVersion]
// reports whether a program may use tables as they are. [GrantReader] and [GrantAnalyst] let other roles read, and
// [SetSearch] creates the optional index of words.
//
// # Contract
//
// A migration that was released does not change. Each runs once, in the order of the versions. Programs of the release
// before it must work beside it, or agent_readable_from must return a later version. All functions but CheckVersion
// need the role that owns the tables.
//
// # Concurrency
//
// All functions are safe for concurrent use, also by several processes. Migrations hold an advisory lock.
//
// # What it does not do
//
// It creates no partitions: package postgres does, when it stores the first row of a day.
//
// # Where to look next
//
// docs/upgrade.md for how and when to migrate, docs/sql.md for the views.
package tables
