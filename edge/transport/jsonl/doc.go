// Package jsonl writes events as lines of JSON, whole or compressed: a run as a file.
//
// # What it is
//
// A [Transport] opens a [Sink] on an HTTP response. [Negotiate] picks the content coding from what
// the client accepts: zstd before gzip before none.
//
// # Contract
//
// A body is ended cleanly by [Sink.CloseWith] alone, after the last line (mode C of the design). Whoever
// closes a sink without it must break the body off, so that no client takes a part for the whole;
// a compressed body that lacks its end is damaged in itself. Lines go out as they came. Every 64 KiB
// are written under a deadline; a client that does not take them gets dialect.ErrSlowClient.
//
// # Concurrency
//
// A Transport is safe for concurrent use; a Sink belongs to one goroutine. Nothing here starts one.
//
// # What it does not do
//
// It does not read the log, and it does not know when a body is complete. It is no transport.Sink: a live
// stream of JSON lines is a format of package sse, which holds no memory between two of them.
//
// # Where to look next
//
// edge/rest/export.go, which feeds it.
package jsonl
