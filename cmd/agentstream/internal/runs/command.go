package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// CommandFlags are what all commands to a run have. A command is an event of the run: what it does is
// for the agent to decide, and tail shows it.
type CommandFlags struct {
	cli.ServerFlags
	RunID string `arg:"" name:"run" help:"Run to tell."`
	Key   string `help:"Idempotency key: a command under a key that was used is not given again." placeholder:"KEY"`
	JSON  bool   `name:"json" help:"Print one JSON object."`

	cli.Streams `kong:"-"`
}

// send sends a command and prints one line: run and number.
func (c *CommandFlags) send(ctx context.Context, name string, payload map[string]any) error {
	if err := schema.ValidRunID(c.RunID); err != nil {
		return fmt.Errorf("RUN: %w", err)
	}
	cl, err := cli.NewClient(c.ServerFlags, c.Notice)
	if err != nil {
		return err
	}
	defer cl.Close()
	for field, v := range payload {
		if v == "" {
			delete(payload, field)
		}
	}
	r, err := cl.Run(c.RunID).Command(ctx, agentstream.Command{Name: name, Key: c.Key, Payload: payload})
	if err != nil {
		return fmt.Errorf("%s run %s: %w", verbs[name], c.RunID, err)
	}
	return c.Print(c.JSON, map[string]any{"run_id": c.RunID, "seq": r.Last}, "run=%s seq=%d", c.RunID, r.Last)
}

// verbs are the commands as people type them.
var verbs = map[string]string{
	agentstream.CommandCancel: "cancel", agentstream.CommandPause: "pause", agentstream.CommandResume: "resume",
	agentstream.CommandRedirect: "redirect",
	agentstream.CommandApprove:  "approve", agentstream.CommandReject: "reject", agentstream.CommandAnswer: "answer",
	agentstream.CommandMessage: "say to",
	agentstream.CommandUpdate:  "update",
}

// PauseCmd asks a run to wait.
type PauseCmd struct {
	CommandFlags
	Reason string `help:"Why, for people."`
}

// Run sends the command.
func (c *PauseCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandPause, map[string]any{"reason": c.Reason})
}

// ResumeCmd lets a paused run go on.
type ResumeCmd struct{ CommandFlags }

// Run sends the command.
func (c *ResumeCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandResume, map[string]any{})
}

// ApproveCmd accepts a run's plan.
type ApproveCmd struct {
	CommandFlags
	Plan string `help:"Id of the plan; without it the open one." placeholder:"ID"`
}

// Run sends the command.
func (c *ApproveCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandApprove, map[string]any{"plan_id": c.Plan})
}

// RejectCmd refuses a run's plan.
type RejectCmd struct {
	CommandFlags
	Plan   string `help:"Id of the plan; without it the open one." placeholder:"ID"`
	Reason string `help:"Why, for the agent."`
}

// Run sends the command.
func (c *RejectCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandReject, map[string]any{"plan_id": c.Plan, "reason": c.Reason})
}

// RedirectCmd sends a run another instruction.
type RedirectCmd struct {
	CommandFlags
	Instruction string `arg:"" help:"What to do instead."`
}

// Run sends the command.
func (c *RedirectCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandRedirect, map[string]any{"instruction": c.Instruction})
}

// UpdateCmd changes what is said of a run.
type UpdateCmd struct {
	CommandFlags
	Title    *string           `help:"Title, for people; an empty one takes it away."`
	Tag      []string          `help:"A tag; all together take the place of those that the run has." placeholder:"TAG"`
	NoTags   bool              `help:"Take the tags away."`
	Metadata map[string]string `help:"A pair of metadata; an empty value takes it away." placeholder:"NAME=VALUE"`
}

// Run sends the change.
func (c *UpdateCmd) Run(ctx context.Context) error {
	said := map[string]any{}
	if c.Title != nil {
		said["title"] = orNull(*c.Title)
	}
	if len(c.Tag) > 0 {
		said["tags"] = c.Tag
	} else if c.NoTags {
		said["tags"] = nil
	}
	pairs := make(map[string]any, len(c.Metadata))
	for name, value := range c.Metadata {
		pairs[name] = orNull(value)
	}
	if len(pairs) > 0 {
		said["metadata"] = pairs
	}
	if len(said) == 0 {
		return errors.New("nothing to say: --title, --tag or --metadata")
	}
	return c.send(ctx, agentstream.CommandUpdate, said)
}

// orNull is null for an empty text.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// AnswerCmd answers a run's question.
type AnswerCmd struct {
	CommandFlags
	Request string `arg:"" help:"Id of the question: request_id of input.requested."`
	Answer  string `arg:"" help:"The answer."`
	Value   bool   `name:"json-value" help:"The answer is a JSON value, not a text."`
}

// Run sends the command.
func (c *AnswerCmd) Run(ctx context.Context) error {
	payload := map[string]any{"request_id": c.Request}
	if c.Value {
		if !json.Valid([]byte(c.Answer)) {
			return fmt.Errorf("ANSWER must be a JSON value, not %s", terminal.Clip(terminal.Sanitize(c.Answer), 80))
		}
		payload["answer"] = json.RawMessage(c.Answer)
	} else {
		payload["answer"] = &c.Answer // also when it is empty
	}
	return c.send(ctx, agentstream.CommandAnswer, payload)
}

// SayCmd sends a message to a run; after its end that is a follow-up.
type SayCmd struct {
	CommandFlags
	Text string `arg:"" help:"What to say."`
}

// Run sends the command.
func (c *SayCmd) Run(ctx context.Context) error {
	return c.send(ctx, agentstream.CommandMessage, map[string]any{"content": &c.Text})
}
