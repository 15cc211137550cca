package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"syscall"
	"time"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/protocols/nimi"
	"agentstream/schema"
)

// ListCmd lists runs, the newest first.
type ListCmd struct {
	cli.ServerFlags
	RunFilter
	Sort  string `help:"Order: started, updated, duration or events, the greatest first." enum:"started,updated,duration,events" default:"started"`
	Asc   bool   `help:"The smallest first."`
	Limit int    `help:"Most runs; 0 all." default:"20"`
	JSON  bool   `name:"json" help:"Print one JSON object per line."`

	cli.Streams `kong:"-"`
}

// RunFilter selects runs.
type RunFilter struct {
	Search string            `short:"q" help:"Only runs with all of these words in their id, title, agent, model, tags or first message." placeholder:"WORDS"`
	Tag    string            `help:"Only runs with this tag." placeholder:"TAG"`
	Agent  string            `help:"Only runs of the agent with this id." placeholder:"ID"`
	Model  string            `help:"Only runs whose newest message is of this model." placeholder:"MODEL"`
	Reason string            `help:"Only runs with this in their reason." placeholder:"TEXT"`
	State  []schema.RunState `help:"Only runs in one of these states: planning, awaiting_approval, running, paused, redirecting, done, aborted, error." placeholder:"STATE"`
	Since  string            `help:"Only runs that began then or later: a time (RFC 3339) or so long ago (90m, 24h)." placeholder:"TIME"`
	Until  string            `help:"Only runs that began before." placeholder:"TIME"`
	Waits  bool              `help:"Only runs that wait for somebody: for an answer, the approval of a plan, or to be resumed."`
}

// pageOfRuns is how many runs one request asks for.
const pageOfRuns = 200

// Run prints the list.
func (c *ListCmd) Run(ctx context.Context) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	cl, err := cli.NewClient(c.ServerFlags, c.Notice)
	if err != nil {
		return err
	}
	defer cl.Close()
	show := c.List(c.JSON, c.none(), "RUN", "STATE", "STARTED", "TOOK", "EVENTS", "TOKENS", "TITLE", "REASON")
	more, err := c.pages(ctx, cl, q, show)
	if err == nil {
		err = show.Close()
	}
	switch {
	case errors.Is(err, syscall.EPIPE), err != nil && ctx.Err() != nil:
		return nil // the reader of our output, or the person before it, has seen enough
	case err != nil:
		return fmt.Errorf("list runs: %w", err)
	case more && !c.JSON:
		c.Notice("there are more; --limit 0 lists all")
	}
	return nil
}

// none returns what is told of an empty list.
func (c *ListCmd) none() string {
	if !reflect.ValueOf(c.RunFilter).IsZero() {
		return "no such runs"
	}
	return "no runs yet: agentstream demo plays one, agentstream publish writes one"
}

// pages shows page after page and reports whether there are more than were wanted.
func (c *ListCmd) pages(ctx context.Context, cl *agentstream.Client, q agentstream.RunsQuery,
	show *cli.List) (more bool, err error) {
	for left := c.Limit; ; {
		q.Limit = pageOfRuns
		if c.Limit > 0 {
			q.Limit = min(left, pageOfRuns)
		}
		page, err := cl.Runs(ctx, q)
		if err != nil {
			return false, err
		}
		for i := range page.Runs {
			if !c.JSON && nimi.Feeds().Has(page.Runs[i].RunID) {
				continue // no agent's
			}
			if err := add(show, &page.Runs[i]); err != nil {
				return false, err
			}
		}
		left -= len(page.Runs)
		if page.NextCursor == "" || c.Limit > 0 && left <= 0 {
			return page.NextCursor != "", nil
		}
		q.Cursor = page.NextCursor
	}
}

func (c *ListCmd) query(now time.Time) (q agentstream.RunsQuery, err error) {
	if c.Limit < 0 {
		return q, fmt.Errorf("--limit must be 0 or more, not %d", c.Limit)
	}
	q, err = c.RunFilter.query(now)
	q.Oldest = c.Asc
	if c.Sort != "started" {
		q.Order = schema.RunOrder(c.Sort)
	}
	return q, err
}

func (f *RunFilter) query(now time.Time) (q agentstream.RunsQuery, err error) {
	q = agentstream.RunsQuery{States: f.State, Waits: f.Waits, Search: f.Search, Tag: f.Tag, Agent: f.Agent,
		Model: f.Model, Reason: f.Reason}
	if q.Since, err = cli.ParseSince("--since", f.Since, now); err != nil {
		return q, err
	}
	q.Until, err = cli.ParseSince("--until", f.Until, now)
	return q, err
}

// add adds a run to a list.
func add(show *cli.List, r *agentstream.RunInfo) error {
	state := string(r.State)
	switch {
	case r.WaitsFor == schema.WaitsForAnswer:
		state = "waiting" + since(r)
	case r.WaitsFor != "":
		state += since(r)
	case state == "":
		state = "none"
	}
	started := r.StartedAt
	if at, err := time.Parse(time.RFC3339Nano, started); err == nil {
		started = at.UTC().Format("2006-01-02 15:04:05")
	}
	return show.Add(r, terminal.Sanitize(r.RunID), terminal.Sanitize(state), terminal.Sanitize(started), took(r),
		r.LastSeq, tokens(r.Usage),
		terminal.Shorten(terminal.Sanitize(cmp.Or(r.Title, r.Opening))), terminal.Shorten(terminal.Sanitize(r.Reason)))
}

// since returns since when a run waits, for people; "" is for one that does not wait.
func since(r *agentstream.RunInfo) string {
	at, err := time.Parse(time.RFC3339Nano, r.Since)
	if err != nil {
		return ""
	}
	return at.UTC().Format(" since 2006-01-02 15:04")
}

// took is the time from a run's first to its newest event; with a + while it goes on.
func took(r *agentstream.RunInfo) string {
	from, err1 := time.Parse(time.RFC3339Nano, r.StartedAt)
	to, err2 := time.Parse(time.RFC3339Nano, r.UpdatedAt)
	if err1 != nil || err2 != nil {
		return "-"
	}
	text := to.Sub(from).Round(time.Second).String()
	if r.EndedAt == "" {
		text += "+"
	}
	return text
}

// tokens shows what went in and came out, by the names that providers use for it.
func tokens(u schema.Usage) string {
	in := u["input_tokens"] + u["prompt_tokens"] + u["promptTokenCount"] // as each provider names them
	out := u["output_tokens"] + u["completion_tokens"] + u["candidatesTokenCount"]
	if in == 0 && out == 0 {
		return "-"
	}
	return strconv.FormatInt(in, 10) + "/" + strconv.FormatInt(out, 10)
}
