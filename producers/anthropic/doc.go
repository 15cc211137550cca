// Package anthropic turns the stream of the Anthropic Messages API into canonical events.
//
// # What it is
//
// A [Decoder] takes the bytes of a response body as they come, in pieces of any size, and gives the
// events of the schema's catalogue. It reads the form of the wire (server-sent events, LF or CRLF)
// and the form of logs (one event's JSON per line), and finds out which it is. [Decode] does the
// same for a reader.
//
// # Contract
//
// Strings pass as the provider wrote them, escapes included; they are never decoded and encoded
// again. Nothing that the provider said is lost: what has no place in the catalogue is kept under
// custom.anthropic.*, a frame that cannot be read under custom.anthropic.bad_frame. Every
// message.start is followed by its message.end, at the latest from Close, and every event fits
// schema.MaxEventBytes; a payload that had to leave something out says so in "omitted".
//
// No input is an error. What the model said is for people to see, also when it is damaged.
//
// # Concurrency
//
// A Decoder belongs to one goroutine at a time. It starts none.
//
// # What it does not do
//
// No HTTP and no clock; it neither numbers events nor writes them (producers does). It does not run
// tools: tool.end events are the provider's own results of server tools.
//
// # Where to look next
//
// frames.go cuts the bytes into frames, decoder.go is the state machine, message.go what a message
// and its blocks collect. The stream is specified at
// https://docs.claude.com/en/docs/build-with-claude/streaming.
package anthropic
