// Package s3 keeps runs in a bucket of any S3-compatible service.
//
// # What it is
//
// A [Store] is a blob.Store. [Parse] reads its place from a URL:
//
//	s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1&path-style=true
//
// # Contract
//
// An object of a size that fits one part is made by one request, a larger one part by part with a
// bounded buffer. Objects are made on the condition that there is none of the name; a server that does
// not know the condition replaces. Reads are ranges of one object; nothing is listed but by List.
//
// Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN), else from the file that AWS_SHARED_CREDENTIALS_FILE names (or ~/.aws/credentials,
// profile AWS_PROFILE), else from the machine's role. They are in no URL, no log and no error: a URL that
// holds some is refused.
//
// # Concurrency
//
// A Store is safe for concurrent use. It starts nothing.
//
// # What it does not do
//
// It makes no bucket, sets no life cycle, and compresses nothing.
//
// # Where to look next
//
// blob.Store for the promises; blob for what the objects hold.
package s3
