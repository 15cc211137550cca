// Package langgraph turns the protocol events of LangGraph agents into events of the catalogue.
//
// # What it is
//
// A [Decoder] reads JSON lines as streamEvents(…, {version: "v3"}) of @langchain/langgraph yields them, and returns the
// events of a run. [Decode] does the same for a whole stream.
//
// # Contract
//
// A line becomes one event that every protocol reads in its own way: of a message, a call, a state, a checkpoint, a
// task. Its payload has the namespace and the node of the line, and under "data" the line's data where the event alone
// would not say it: protocols/langgraph sends the line again. What the catalogue has no place for is
// custom.langgraph.METHOD.
//
// A namespace with its task ids is new in every step; a lane is not. A lane belongs to the names of a namespace, and
// when the namespace has ended, the next of those names takes it: lanes grow with what runs at the same time. Messages
// and calls of a node are in the lane of its graph: those of the outermost graph are the run's own. A message that
// begins while another is open there is in the lane of its node.
//
// A request for input, which LangGraph sends as a state, is an input.requested before it. What is over the limit of an
// event is left out, named in "omitted", and a loss says so. A line that cannot be read is a [*LineError] and a loss;
// the others are read.
//
// # Concurrency
//
// A Decoder belongs to one goroutine. It starts none.
//
// # What it does not do
//
// It writes nothing to a log, runs no graph and answers no commands: docs/producers.md has a worker that does.
//
// # Where to look next
//
// decode.go reads lines, lane.go finds lanes, message.go has what models say, event.go all else. The protocol is
// described in https://github.com/langchain-ai/agent-protocol (streaming/protocol.cddl).
package langgraph
