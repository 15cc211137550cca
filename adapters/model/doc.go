// Package model answers sessions with models: scripted ones, and those of providers.
//
// # What it is
//
// A [Set] has models by name. Its Answer is a [agentstream/producers/worker.Answer]: the model that session.created
// names answers. [Scripted] are models for trying things out, [Upstream] asks a provider over HTTP and feeds what it
// says into the turn, by the adapter of that provider.
//
// # Contract
//
// A model is asked at most once for a question: nothing is tried again. The error of an answer is an [Error], of which
// a protocol makes a reason of its own. Credentials of providers stand in the header of the request alone; no error and
// no event has them, and redirects are not followed.
//
// # Concurrency
//
// A Set is filled first. Its Answer is safe for concurrent use then.
//
// # What it does not do
//
// It runs no tools: a call that a model asks for is the client's, and is ended as such with the turn.
//
// # Where to look next
//
// producers/worker calls Answer; cmd/agentstream/worker.go is the program.
package model
