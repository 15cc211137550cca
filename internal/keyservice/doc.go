// Package keyservice derives the data keys by which content of tenants is encrypted (package schema/seal), from keys that a key
// service keeps.
//
// # What it is
//
// [File] keeps one key for each tenant in a folder, for tests and small deployments; [Vault] uses the transit engine of a
// HashiCorp Vault or OpenBao. A tenant has one key with versions. What a data key is for is a text, its label; the data key
// is HMAC-SHA256 of the label under the key. So nothing has to be kept beside the key itself, and nothing but it opens
// what was encrypted.
//
// # Contract
//
// A version of a key always gives the same data key for a label. A key that was deleted never comes back: the versions of one
// that is made anew in a File go on where they were, and a Vault gives other keys, which package seal tells apart.
//
// # Concurrency
//
// All are safe for concurrent use, also by several processes.
//
// # What it does not do
//
// It remembers no keys, and makes none by itself: agentstream keys create does.
//
// # Where to look next
//
// docs/encryption.md; file.go.
package keyservice
