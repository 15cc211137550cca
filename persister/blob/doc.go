// Package blob keeps runs that have ended as compressed JSONL objects, and replays them by range.
//
// # What it is
//
// An object is the lines of one run as independent zstd frames with an index behind them: `zstd -dc`
// gives the lines, and a reader that knows the index decodes only the frames that it needs.
// docs/archive.md has the format byte by byte. [Writer] and [Verify] write and check one. A [Store]
// keeps objects: [Folder] here, S3 in the folder s3. [Archive] is the read side: tables and objects
// as one history. [Archiver] writes objects of runs that have ended.
//
// # Contract
//
// What comes out of an object is byte by byte what went in, or an error that wraps [ErrCorrupt] and
// names the object: every byte of an object is covered by a check sum. An object is never changed. A
// run's row names an object only after the object was read back and compared. A run with a hole is
// not archived. An object that cannot be reached is an error and never an end of the run.
//
// # Concurrency
//
// Archive, Folder and the S3 store are safe for concurrent use. Archiver.Run starts its workers and
// returns when all have ended; several processes may run one over the same tables and objects. A
// Writer belongs to one goroutine.
//
// # What it does not do
//
// It removes no rows and expires nothing: retention does. It knows no SQL.
//
// # Where to look next
//
// persister.Place for where the events of a run are, persister.WalkFrom for how packs are put
// together.
package blob
