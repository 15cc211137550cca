// Package blob keeps runs that have ended as compressed JSONL objects, and replays them by range.
//
// # What it is
//
// An object is the lines of one run as independent zstd frames, followed by an index: `zstd -dc` prints the lines,
// and a reader that knows the index decodes only the frames that it needs. docs/archive.md has the format byte by
// byte. [Writer] and [Verify] write and check one. A [Store] keeps objects: [Folder] here, S3 in package s3.
// [Archive] is the read side: tables and objects as one history. [Archiver] writes objects of runs that have ended.
//
// # Contract
//
// Lines read from an object are byte-identical to those written, or the error wraps [ErrCorrupt] and names the
// object: every byte of an object is covered by a checksum. An object is never changed. A run's row names an object
// only after the object was read back and compared. A run with a gap is not archived. An object that cannot be
// reached is an error, never the end of the run.
//
// # Concurrency
//
// Archive, Folder and the S3 store are safe for concurrent use. Archiver.Run starts its workers and returns when all
// have ended; several processes may run one on the same tables and objects. A Writer belongs to one goroutine.
//
// # What it does not do
//
// It removes no rows and does not decide what expires: retention does. It knows no SQL.
//
// # Where to look next
//
// persister.Place for where the events of a run are, persister.WalkFrom for how packs are made of lines.
package blob
