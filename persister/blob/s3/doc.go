// Package s3 keeps runs in a bucket of any S3-compatible service.
//
// # What it is
//
// A [Store] is a blob.ObjectStore. [Parse] reads its configuration from a URL:
//
//	s3://bucket/prefix?endpoint=https://host:port&region=eu-central-1&path-style=true
//
// # Contract
//
// An object that fits one part is created by one request, a larger one part by part with a bounded buffer. Objects are
// created on the condition that the name is free; a server that does not know the condition replaces them. A read is a
// range of one object. Only List and Sweep list objects.
//
// Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN), else from the file that AWS_SHARED_CREDENTIALS_FILE names (or ~/.aws/credentials,
// profile AWS_PROFILE), else from the machine's role. They are in no URL, log or error: a URL with credentials is
// refused.
//
// # Concurrency
//
// A Store is safe for concurrent use. It starts nothing.
//
// # What it does not do
//
// It creates no bucket, sets no life cycle, and compresses nothing.
//
// # Where to look next
//
// blob.ObjectStore for the contract, package blob for the contents of objects.
package s3
