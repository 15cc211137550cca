package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/schema"
)

// CancelCmd asks a run, or all runs of some states, to end.
type CancelCmd struct {
	cli.ServerFlags
	RunID  string            `arg:"" optional:"" name:"run" help:"Run to cancel; without it those of --state."`
	State  []schema.RunState `help:"Cancel all runs in one of these states, with --older." placeholder:"STATE"`
	Older  string            `help:"With --state: runs that began before: a time (RFC 3339) or so long ago (90m, 24h)." placeholder:"TIME"`
	Tag    string            `help:"With --state: only runs with this tag." placeholder:"TAG"`
	DryRun bool              `help:"With --state: print the runs and cancel none."`
	Reason string            `help:"Why, for people."`
	Key    string            `help:"Idempotency key: a command under a key that was used is not given again." placeholder:"KEY"`
	JSON   bool              `name:"json" help:"Print one JSON object per line."`

	cli.Streams `kong:"-"`
}

// Run sends the command, or one to each run.
func (c *CancelCmd) Run(ctx context.Context) error {
	switch {
	case c.RunID != "" && len(c.State) == 0 && c.Older == "" && c.Tag == "" && !c.DryRun:
		return c.cancel(ctx, c.RunID)
	case c.RunID != "":
		return errors.New("a run and --state, --older, --tag or --dry-run exclude each other")
	case len(c.State) == 0 || c.Older == "":
		return errors.New("name a run, or --state and --older for many")
	}
	f := RunFilter{State: c.State, Until: c.Older, Tag: c.Tag}
	q, err := f.query(time.Now())
	if err != nil {
		return fmt.Errorf("--older: %w", err)
	}
	for _, state := range c.State {
		if state.Final() {
			return fmt.Errorf("--state %s: such runs are over", state)
		}
	}
	runs, err := c.find(ctx, q)
	if err != nil {
		return err
	}
	for _, run := range runs { // a list is read whole before it changes
		if c.DryRun {
			err = errors.Join(err, c.Print(c.JSON, map[string]any{"run_id": run}, "run=%s", run))
		} else {
			err = errors.Join(err, c.cancel(ctx, run)) // others may end meanwhile
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

func (c *CancelCmd) cancel(ctx context.Context, run string) error {
	one := CommandFlags{ServerFlags: c.ServerFlags, RunID: run, Key: c.Key, JSON: c.JSON, Streams: c.Streams}
	return one.send(ctx, agentstream.CommandCancel, map[string]any{"reason": c.Reason})
}

// find returns the ids of all runs of a query.
func (c *CancelCmd) find(ctx context.Context, q agentstream.RunsQuery) (ids []string, err error) {
	cl, err := cli.NewClient(c.ServerFlags, c.Notice)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for q.Limit = pageOfRuns; ; {
		page, err := cl.Runs(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		if page.NextCursor == "" {
			return ids, nil
		}
		q.Cursor = page.NextCursor
	}
}
