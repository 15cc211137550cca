// Package backup has the commands that copy a deployment into a folder, and bring it back from there.
//
// # What it is
//
// backup dumps the tables, then lists or copies the objects, then makes snapshots of the streams: the log is always
// newer than the tables, so what the tables lack is stored again from it. A manifest, which is written last, says what
// each part holds, with check sums. restore reads the manifest, compares every file with it, and brings back the parts
// that are not there yet.
//
// # Contract
//
// A folder without a manifest is no backup. restore never writes over tables, objects or streams that exist: those that
// are as the manifest says are left, others are an error that names them. Both may be interrupted; restore goes on when
// it is run again.
//
// # Concurrency
//
// A command runs in one goroutine. The deployment serves while a backup is made.
//
// # What it does not do
//
// It starts nothing: migrate and the roles come afterwards. Tables are dumped and restored by PostgreSQL's own programs.
//
// # Where to look next
//
// docs/backup.md; internal/natskit, snapshot.go, for the streams.
package backup
