// Package transcript imports the transcripts that agents leave behind as whole runs.
//
// # What it is
//
// [Decode] reads one finished transcript and returns the canonical events of a run: messages of all roles
// with their blocks, tool calls with their results, steps, sub-agents as children, and how it ended.
// [Formats] are those that it knows: swe-agent (one JSON document), openhands (one conversation event
// per line), gemini-cli (one model call per line), claude-code (the lines of --output-format
// stream-json, with and without partial messages). [Recognise] tells formats apart by the first bytes,
// also those of model streams, which the adapters beside this package read.
//
// # Contract
//
// What adapters/provider promises of strings, sizes and things unknown holds here too; what has no place
// in the catalogue stands under custom.swe_agent.*, custom.openhands.*, custom.gemini.* and
// custom.claude_code.*. Left out is only what stands elsewhere in the same file.
//
// Events carry the times that the transcript has, in RFC 3339; a time without a zone is read as UTC.
// swe-agent and gemini-cli have none. The messages of the model end with stop_reason tool_use where they
// call tools; otherwise it is null where the transcript does not have it. A step.boundary ends each
// message of the model with what followed from it.
//
// Every call that begins ends: one whose result the transcript lacks ends as not ok, with an error of
// type no_result. gemini-cli never records results; there a call ends as ok with "unrecorded" when the
// model has gone on, since it cannot without an answer.
//
// Messages are in the provider's name where the format belongs to one (anthropic, gemini), else in the
// format's (swe_agent, openhands). Of swe-agent, tool messages hold what the model was shown of a
// result, tool.end the tool's output; an action that the model wrote in its text is a call of the tool
// "action"; steps' "query" is left out, for the history has it.
//
// The run ends as in the transcript: done, error or aborted with the reason. A transcript that was
// cut or has a line that cannot be read ends as an error, after all that could be read. Children
// always have lifecycle events; those of the run itself are [Config.Lifecycle]'s choice.
//
// Memory is bounded by one line, and for swe-agent by the document ([Config.MaxDocumentBytes]).
//
// # Concurrency
//
// A Decode belongs to one goroutine. It starts none.
//
// # What it does not do
//
// It writes nothing to a log and paces nothing: who publishes does. It does not guess whose model call
// belongs to a sub-agent where the file does not name it.
//
// # Where to look next
//
// transcript.go has the entry, recorder.go what all formats share, and each format its own file. The
// formats: SWE-agent's trajectory files (https://swe-agent.com, output files), the events of the
// OpenHands software agent SDK (https://docs.openhands.dev/sdk), the recorded responses of gemini-cli's
// integration tests, and the message types of Claude Code's SDK
// (https://docs.claude.com/en/docs/claude-code/sdk).
package transcript
