// Package provider is what the adapters of all model providers share: the bytes of a streamed answer
// become frames, and their content becomes canonical events.
//
// # What it is
//
// A [Decoder] takes the bytes of a response body as they come, in pieces of any size, and returns the
// events of the schema's catalogue. It reads server-sent events (LF, CR or CRLF), one JSON object per
// line, and JSON printed over several lines or in a list, and finds out which it is. What the frames
// mean is a [Machine], one for each provider; it emits through a [Writer], whose [Message]
// and [Block] keep the framing right: every message.start has its message.end, every block.start its
// block.end, and a complete tool call its tool.start. [Outcome] is how it all went.
//
// # Contract
//
// Strings pass as the provider wrote them, escapes included; they are never decoded and encoded
// again. Nothing that the provider sent is lost: what has no place in the catalogue is kept under
// custom.<provider>.*, a frame that cannot be read under custom.<provider>.bad_frame. No input is an
// error: the model's text is for people to see, also when it is damaged. Every event fits
// schema.MaxEventBytes; a payload that had to leave something out names it in "omitted".
//
// Services break these streams in every way. What a piece belongs to is decided by its id, else its place, else its
// shape ([Assembly], [Register]). An end is believed when something else begins or comes ([Block.Stop]); texts are
// emitted as they come in any case. What is sent twice is known by its content. docs/producers.md names the breaks.
//
// The content of message.end is in one form whatever the provider: a list of blocks {"type":"text",
// "text"}, {"type":"thinking","thinking","signature"}, {"type":"tool_use","id","name","input"}, and the
// provider's own kinds with their own members. An input that never became JSON stands as partial_json.
//
// # Concurrency
//
// A Decoder belongs to one goroutine at a time. It starts none.
//
// # What it does not do
//
// No HTTP and no clock; it neither numbers events nor writes them (producers does), and runs no tools.
//
// # Where to look next
//
// adapters/anthropic is the adapter that shows all of it.
package provider
