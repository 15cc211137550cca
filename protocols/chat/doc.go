// Package chat is what the protocols of chat pages have in common: a run as responses to what a person says.
//
// # What it is
//
// A [Reader] follows the responses of a run and returns [Event]s: texts, calls of tools, questions, data, and how the
// response ended. [Say] stores a message of a person once, [Decide] answers questions. reader.go has where responses
// begin and end, part.go what is in them, person.go what a person says, write.go what is stored.
//
// # Contract
//
// A response is what the root of a run does from a message of a person, or from the first sign of work, to the end of
// its turn or of the run. Events depend on the records alone. What opens closes: texts before the next message, a
// question and the end, calls before the end unless the turn has ended well: then their tools may go on. A message
// that comes while a response is under way has a response of its own after that, or an empty one when the agent takes
// it into the one that is under way.
//
// # Concurrency
//
// A Reader belongs to one goroutine. Copies share memory that neither changes.
//
// # What it does not do
//
// It knows no protocol's words, no frames and no requests.
//
// # Where to look next
//
// Package aisdk makes chunks of the events; schema/assemble is the reading below.
package chat
