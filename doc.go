// Package agentstream is the root of the durable, replayable event stream behind AI agents. It holds
// no code, only the rules of the tree (internal/arch).
//
// # What it is
//
// An agent run goes on for minutes or hours: text, thoughts, tool calls, plans, sub-agents, questions
// to a person. agentstream is the ordered log behind it. Any agent publishes into it; any number of
// clients watch, leave, come back on another node with the number of the last event they saw, and
// get exactly the rest.
//
//	agents ── producers ──▶ NATS JetStream ──▶ persister ──▶ PostgreSQL or SQLite
//	                             │                                │
//	                             │  └───────▶ fanout ◀────────────┘
//	                             │              │
//	                             └─ commands ─ edge ──▶ clients
//
// How the tree reads, from the ground up: schema defines what an event is. producers write, fanout
// reads, persister keeps; these three do not know each other. edge serves clients, with one folder
// for each wire dialect and each transport, shape for what is sent and when, auth for who may. clients
// are libraries for the other side of the wire. cmd/agentstream is the one binary, and the only place
// that knows all of them. A technology is a folder below the role that it serves: producers/natsjs,
// fanout/natsjs, persister/postgres, persister/sqlite.
//
// # Contract
//
// Nothing that was acknowledged is lost, doubled or reordered, whatever is killed. Loss is never
// silent. Cost grows with what is watched, not with what is stored.
//
// # Concurrency
//
// Constructors start nothing. A component that lives long has Run(ctx) error, which returns when all
// that it started has.
//
// # What it does not do
//
// It runs no agents and no models. It is not a general message broker, and not a database of
// conversations.
//
// # Where to look next
//
// docs/ARCHITECTURE.md derives the design; docs/decisions records what was decided against, and why.
package agentstream
