// Package seal encrypts the content of events and blobs under the keys of their tenant, before they are stored.
//
// # What it is
//
// [Keys] derives data keys, one for a tenant and a month, by a key service ([Deriver]), and remembers them for minutes.
// [Keys.Sealer] gives what seals the events of one pack, [Keys.Open] opens a pack that was read, [Keys.SealBlob] and
// [Keys.OpenBlob] do the same for large content.
//
// # Contract
//
// A sealed event keeps its envelope and, of its payload, the fields by which stores and lists find it ([Clear]); all else is
// one field, $sealed, the last of the payload: AES-256-GCM, bound to the tenant and to everything of the line before it, so
// that it cannot be moved to another tenant, run or number. Once opened, a line has the bytes that it would have had
// without encryption.
//
// Each pack has a key of its own, derived from the data key with 128 random bits; the nonce is the event's number. So no
// pair of key and nonce comes twice, however many events a tenant stores in a month: the chance that two of 2⁴⁸ packs
// have one key is 2⁻³³, and even then their numbers must be the same.
//
// The error of what cannot be opened wraps schema.ErrKeyGone where the key service has no such key, schema.ErrUnavailable
// where it does not answer, and schema.ErrBadPack where the bytes were changed.
//
// # Concurrency
//
// Keys is safe for concurrent use; a nil Keys seals and opens nothing. A Sealer is for one goroutine.
//
// # What it does not do
//
// It knows no log and no key service, and hides no ids, types, times, numbers or sizes.
//
// # Where to look next
//
// docs/encryption.md; docs/decisions/0077-encryption.md; line.go.
package seal
