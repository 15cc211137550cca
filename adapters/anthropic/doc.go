// Package anthropic turns the stream of the Anthropic Messages API into canonical events.
//
// # What it is
//
// [NewDecoder] returns a decoder of the shape that all adapters share (adapters/provider). It reads
// thinking with signatures, redacted thinking, tools of the client, of the provider and of MCP servers,
// citations, compaction, fallback models, blocks that come whole within message_start, answers that were not streamed,
// and errors in mid-stream.
//
// # Contract
//
// That of adapters/provider. Blocks are numbered in the order in which they begin. tool.end events are the provider's
// own results of server tools.
//
// # Concurrency
//
// A decoder belongs to one goroutine at a time.
//
// # What it does not do
//
// No HTTP (adapters/proxy does that), and it runs no tools.
//
// # Where to look next
//
// decoder.go takes the provider's events, blocks.go the content blocks. The stream is specified at
// https://docs.claude.com/en/docs/build-with-claude/streaming.
package anthropic
