// Package openai turns the streams of the OpenAI APIs, and of the many services with the same API,
// into canonical events.
//
// # What it is
//
// [NewChatDecoder] is for Chat Completions, [NewResponsesDecoder] for Responses; both give a decoder of the shape
// that all adapters share (adapters/provider). Answers that were not streamed are understood as well.
//
// # Contract
//
// That of adapters/provider. In message.end, stop_reason is one of the common values and finish_reason the
// provider's own: stop is end_turn, length and max_output_tokens are max_tokens, content_filter is refusal,
// tool_calls and function_call are tool_use; so is stop when there are calls, for a call that was demanded ends so.
// A model that has sent a refusal, and calls nothing, stops by refusal. Other values stay as they are. usage is the
// provider's last, untouched.
//
// What is emitted once is not emitted again: the texts that done events and the final response repeat are compared
// with what was emitted and complete it; where they contradict it the last of them stands in the content of
// message.end, and is the input of a call, and the frame is kept under custom. Members that the catalogue has no name
// for stand in message.end with their last value; a value that another one replaces is emitted as
// custom.openai.replaced, one that has no room there by custom.openai.member. The padding in obfuscation members is
// dropped: it has no meaning. Log probabilities are emitted piece by piece as custom.openai.logprobs.
//
// Chat. A refusal is a block of kind refusal, and its text no text. Reasoning may be spelt
// reasoning_content, reasoning or reasoning_details. Choice 0 is the message. The other choices are
// alternatives to it, no messages of their own, and their calls are none that run: their pieces are
// passed on live and untouched by custom.openai.choice, and the choices member of message.end holds each of
// them with its index and the same members as message.end. Beyond 127 of them the pieces are all there
// is. A message ends with [DONE], with the body or with the next message; it is incomplete when its
// finish_reason is missing, unless [DONE] came and its calls are whole, and failed when a chunk or frame had an error.
// Another id begins another message when the one before has its finish_reason, or when it names its role anew, unless
// ids change with every chunk. A finish_reason ends nothing that goes on.
//
// Responses. A response is one message, and an item one block or several: summaries of reasoning are thinking; raw
// reasoning is a block of kind reasoning as well, which has {"type":"reasoning_text"} in block.start and in the
// content. item_id and encrypted_content are members of the blocks. Calls of functions and custom tools are tool_use.
// Tools of the provider are calls too, of the kind that the item has; their content is the item with its input
// beside, and tool.end their result, unless the client is who runs them. Where the output is an item of its own the
// call ends with that, or with how it went when the response ends without it. Images are emitted as data.delta, each
// in a block of its own. Items are found by id, else by output_index, else by their type: ids may change within one
// stream, and so may the response's, of which the last stands in message.end as response_id. Another response begins
// with response.created and another id, or where the numbers of events start over.
//
// A response that goes on in another body (starting_after) is handed to the same decoder: call its
// Rejoin in between, and not Close. Ask for starting_after=0, or for any number that was surely seen;
// what is repeated is passed over by its sequence_number. A body that begins the same response again
// without Rejoin is seen by its first events.
//
// # Concurrency
//
// A decoder belongs to one goroutine at a time.
//
// # What it does not do
//
// No HTTP (adapters/proxy does that), and it runs no tools. It does not resume: whoever reads does.
//
// # Where to look next
//
// chat.go takes the chunks, choice.go and calls.go what is in them. responses.go takes the events of Responses, and
// knows what is repeated; items.go, pieces.go and builtin.go take their items. The streams are specified at
// https://platform.openai.com/docs/api-reference/chat-streaming and
// https://platform.openai.com/docs/api-reference/responses-streaming.
package openai
