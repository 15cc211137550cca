// Package answer is the worker's side of the runtime protocol: it answers the protocol's sessions with models.
//
// # What it is
//
// [Models] has a set of models. Its Answer is a [agentstream/producers/worker.Answer]: a session with a workflow has
// its nodes played, one task for each, and every other one is answered by its model. [Models.Announce] appends the
// names of the models to the tenant's feed of providers, so that edges know which models are served. [Reasons] are for
// whoever ends runs in the place of their writer.
//
// # Contract
//
// The error of an answer begins with the name of a reason code of the protocol where a model, or what was asked of it,
// is the reason (docs/dialects/runtime.md). A model is asked at most once for a question or a node.
//
// # Concurrency
//
// Models are safe for concurrent use when their set is filled.
//
// # What it does not do
//
// It asks no provider: that is adapters/model. It serves no client: that is protocols/nimi/serve.
//
// # Where to look next
//
// workflow.go plays workflows; cmd/agentstream/worker.go is the program.
package answer
