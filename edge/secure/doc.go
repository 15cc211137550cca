// Package secure is TLS for listeners: certificates that are read again when their files change, and connections that
// streams can write to without waiting.
//
// # What it is
//
// [Files] are a certificate, its key, and the authorities of clients, in files. [Files.Wrap] makes a [Conn] of a
// connection that a listener has accepted.
//
// # Contract
//
// A handshake has the certificate that is in the files when it begins; connections that are there keep theirs. Files
// that cannot be read, or do not fit each other, change nothing: the last good ones stay, and Err says why. TLS 1.2 is
// the least version, with the ciphers that HTTP/2 allows. A handshake has Config.Timeout; one that fails is reported to
// Config.Failed, and costs no goroutine of its own.
//
// A Conn is for the HTTP server like one without TLS: HTTP/2 that was chosen by ALPN begins with its preface, which the
// server knows. What counts streams on the wire reads what TLS protects.
//
// # Concurrency
//
// All is safe for concurrent use as a net.Conn is, but for TryRead and TryWrite: one goroutine at a time reads, and one
// writes.
//
// # What it does not do
//
// It asks no authority for certificates, and maps no certificate of a client to a caller: it only lets in who has one.
//
// # Where to look next
//
// conn.go for writes that do not wait; transport.Try, which uses them.
package secure
