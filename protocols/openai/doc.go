// Package openai is OpenAI's Responses protocol: the openai clients create responses here, and take them up again.
//
// # What it is
//
// openai.go registers the protocol and reads what a GET asks for, projector.go follows the responses of a run,
// item.go makes the events of their items, object.go the Response object, create.go what a POST stores, serve.go the
// rest of the routes.
//
// # Contract
//
// A response is what the root of a run does until the run, or in a session the turn, is over. The first one of a run is
// resp_{run}, the n-th resp_{run}.{n}. sequence_number counts the events of a response from 0 without a hole. They
// depend on the log alone, so a number is the same event on every node, for ever.
//
// A body ends cleanly when the response has ended, and is broken off in all other cases: the clients take a clean end
// for success.
//
// # Concurrency
//
// All values but projectors are immutable.
//
// # What it does not do
//
// Children have no responses. There are no chat completions, and no tools that the client runs.
//
// # Where to look next
//
// docs/dialects/openai.md has the routes and the departures; schema/assemble is the reading of the run.
package openai
