package archive

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// RunsCmd lists runs of any tenant, for operators: whoever has the credential of the tables may. The list that edges
// serve is that of the caller's tenant (docs/decisions/0012).
type RunsCmd struct {
	StoreFlags
	Tenant []string          `help:"Only runs of these tenants." placeholder:"TENANT,…"`
	Search string            `short:"q" help:"Only runs with all of these words in their id, title, agent, model, tags or first message." placeholder:"WORDS"`
	State  []schema.RunState `help:"Only runs in one of these states: planning, awaiting_approval, running, paused, redirecting, done, aborted, error." placeholder:"STATE"`
	Since  string            `help:"Only runs that began then or later: a time (RFC 3339) or so long ago (90m, 24h)." placeholder:"TIME"`
	Limit  int               `help:"Most runs." default:"20"`
	JSON   bool              `name:"json" help:"Print one JSON object per line."`
}

// mostListed bounds what is kept while tenants are read one after the other.
const mostListed = 10_000

// tenantRun is a run as it is printed.
type tenantRun struct {
	Tenant  string          `json:"tenant"`
	Run     string          `json:"run_id"`
	State   schema.RunState `json:"state"`
	Reason  string          `json:"reason,omitempty"`
	Started time.Time       `json:"started_at"`
	Updated time.Time       `json:"updated_at"`
	Last    schema.Seq      `json:"last_seq"`
	Title   string          `json:"title,omitempty"`
	Agent   string          `json:"agent,omitempty"`
	Model   string          `json:"model,omitempty"`
	Cost    *float64        `json:"cost_usd"`
}

// Run prints the newest ones, over all tenants.
func (c *RunsCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.Limit < 1 || c.Limit > mostListed {
		return fmt.Errorf("--limit must be from 1 to %d, not %d", mostListed, c.Limit)
	}
	since, err := cli.ParseSince("--since", c.Since, time.Now())
	if err != nil {
		return err
	}
	q := schema.RunsQuery{States: c.State, Since: since, Limit: c.Limit, Models: true,
		Words: strings.Fields(strings.ToLower(c.Search))}
	return c.With(ctx, log, func(s *CommandStore) error {
		found, err := c.find(ctx, s.Lists, q)
		if err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		list := c.List(c.JSON, "no such runs", "TENANT", "RUN", "STATE", "STARTED", "EVENTS", "COST", "TITLE")
		for _, r := range found {
			cost := "-"
			if r.Cost != nil {
				cost = fmt.Sprintf("$%.4f", *r.Cost)
			}
			if err := list.Add(r, terminal.Sanitize(r.Tenant), terminal.Sanitize(r.Run), cmp.Or(string(r.State), "none"),
				r.Started.Format(time.DateTime), r.Last, cost, terminal.Shorten(terminal.Sanitize(r.Title))); err != nil {
				return err
			}
		}
		return list.Close()
	})
}

// find returns the newest runs of the tenants. It keeps no more than twice the limit of them.
func (c *RunsCmd) find(ctx context.Context, lists RunLists, q schema.RunsQuery) (found []tenantRun, err error) {
	read := func(tenant string) error {
		runs, err := lists.Runs(ctx, tenant, q)
		for i := range runs {
			found = append(found, tenantRunOf(tenant, &runs[i]))
		}
		slices.SortStableFunc(found, func(a, b tenantRun) int { return b.Started.Compare(a.Started) })
		found = found[:min(len(found), q.Limit)]
		return err
	}
	for _, tenant := range c.Tenant {
		if err := read(tenant); err != nil {
			return nil, err
		}
	}
	if len(c.Tenant) > 0 {
		return found, nil
	}
	tenant := ""
	for {
		next, err := lists.NextTenant(ctx, tenant)
		if err != nil || next == "" {
			return found, err
		}
		if err := read(next); err != nil {
			return nil, err
		}
		tenant = next
	}
}

func tenantRunOf(tenant string, r *schema.RunInfo) tenantRun {
	facts := schema.FactsOf(r.Session)
	return tenantRun{Tenant: tenant, Run: r.ID, State: r.State, Reason: r.Reason, Started: r.Started.UTC(),
		Updated: r.Updated.UTC(), Last: r.Last, Title: cmp.Or(facts.Title, r.Opening), Agent: facts.Agent, Model: r.Model,
		Cost: r.Cost}
}
