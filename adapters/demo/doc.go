// Package demo is an agent with a script: a run that shows everything there is to see in about half
// a minute, without a model behind it.
//
// # What it is
//
// An [Agent] runs one of several scripts with the means that any agent has:
// [producers.Run]. The tour compares three designs of a queue: the agent thinks, proposes a plan, reads
// a file, sends out two children while it measures with three tools, shows a picture, asks a person and
// answers. Others wait for a plan to be approved, fail in every way, or are over in two seconds.
//
// [Replies] answer sessions that people open, for as long as these talk: what a message holds decides whether the
// agent thinks, uses a tool, asks for a confirmation or sends a child out before it answers.
//
// # Contract
//
// The texts and their order are always the same, at any speed; commands change them, and the same
// commands at the same points change them in the same way. Every run ends with a final run.lifecycle,
// behind the ends of all that was open: done, error where the script fails, or aborted when the context
// or a command has cancelled it. With a channel of commands the agent, and each child, can be cancelled
// and paused wherever it is, changes its course between two parts of the script, and answers messages;
// the agent waits for its plan to be approved if it must be, asks a question, and takes the run up again
// when it gets a message behind the end. When the sink fails, because another writer has taken the run
// over, say, the agent stops and returns that error, and the run stays as it is.
//
// # Concurrency
//
// Run works on the caller's goroutine and calls the sink from it alone: what happens side by side in the script are
// coroutines, one of which runs at a time. Replies have no state. While the sink makes it wait, the agent receives
// nothing; nor could its end be stored then. An Agent may run many runs, also at the same time.
//
// # What it does not do
//
// It calls no model and runs no tool. It does not read its commands from the log, nor record which of them
// it has taken: its caller hands them in.
//
// # Where to look next
//
// scripts.json has the scripts, and script.go the form that they have; tour shows all of [producers.Run]. actor.go
// plays them, voice.go is the model, stage.go runs actors side by side, commands.go interrupts them.
package demo
