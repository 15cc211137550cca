package main

import (
	"agentstream/cmd/agentstream/internal/runs"
	"agentstream/cmd/agentstream/internal/timeline"
)

// RunCmds are the commands about runs.
type RunCmds struct {
	List runs.ListCmd `cmd:"" aliases:"ls" help:"List runs, the newest first."`
	RunVerbs
}

// RunVerbs are about one run. They stand at the top as well, as short forms: tail is run tail.
type RunVerbs struct {
	Tail     timeline.TailCmd   `cmd:"" help:"Watch a run as it happens."`
	Replay   timeline.ReplayCmd `cmd:"" help:"Play a stored run again, with its original timing."`
	Say      runs.SayCmd        `cmd:"" help:"Send a message to a run; also after its end."`
	Answer   runs.AnswerCmd     `cmd:"" help:"Answer a question that a run has asked."`
	Approve  runs.ApproveCmd    `cmd:"" help:"Accept the plan of a run."`
	Reject   runs.RejectCmd     `cmd:"" help:"Refuse the plan of a run."`
	Pause    runs.PauseCmd      `cmd:"" help:"Ask a run to pause."`
	Resume   runs.ResumeCmd     `cmd:"" help:"Let a paused run go on."`
	Redirect runs.RedirectCmd   `cmd:"" help:"Give a run another instruction."`
	Cancel   runs.CancelCmd     `cmd:"" help:"Ask a run, or all runs of a state, to end."`
	Update   runs.UpdateCmd     `cmd:"" help:"Say by what a run is found: title, tags, metadata."`
}
