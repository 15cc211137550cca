// Package gemini turns the answers of the Gemini API (generateContent and streamGenerateContent, of the
// developer API and of Vertex) into canonical events.
//
// # What it is
//
// [NewDecoder] returns a decoder of the shape that all adapters share (adapters/provider); [NewMachine] returns its
// machine, for callers that have frames already. It reads server-sent events, one chunk per line, and the list form.
// It reads thoughts and their signatures, calls with and without ids, arguments that stream by path, code execution,
// inline data, grounding and citations, safety, refused prompts, several candidates, and errors in mid-stream.
//
// # Contract
//
// That of adapters/provider. The API has no end marker: finishReason ends the content of a message, and message.end
// follows with the end of the body, because counts and grounding may come behind it; a body without finishReason is
// incomplete. A reason ends nothing that goes on, for some services send it with every chunk. Parts of one kind in a
// row are one block, and a block has at most one signature: a part that brings a second one begins another block.
//
// stop_reason is the common value (end_turn, tool_use, max_tokens, refusal, error; what the API cannot
// explain keeps its own value in small letters), finish_reason the API's own. Usage is the last
// usageMetadata as it came, for the counts are running totals. Other members of the response and of
// the candidate stand in message.end under their own names.
//
// A call without an id is named after its message and place, so that a decoder that reads the same bytes again
// results in the same id. Arguments that stream (partialArgs) are emitted as tool.input.delta whose texts join to the
// JSON that block.end has as the input. That is possible as long as they come in the order in which JSON is written,
// which is how models write. When they do not, no more deltas are emitted, the block ends as incomplete, and another
// block of the same call, without deltas, has the whole input.
//
// Further candidates wait until the first has ended (at most 4 MiB of them, then they are kept under
// custom.gemini.candidate), since a lane has one open message. Only the first carries the usage, so
// that sums count it once.
//
// Data comes as data.delta in pieces of whole base64 quanta, each of at most 256 KiB. The content of
// message.end repeats it up to 64 KiB, and else has how many bytes it was.
//
// # Concurrency
//
// A decoder belongs to one goroutine at a time.
//
// # What it does not do
//
// No HTTP (adapters/proxy does that), and it runs no tools. What code execution answered is the only tool.end.
//
// # Where to look next
//
// decoder.go takes the responses, parts.go the parts of their content, arguments.go puts streamed arguments together.
// The response is specified at https://ai.google.dev/api/generate-content, paths in RFC 9535.
package gemini
