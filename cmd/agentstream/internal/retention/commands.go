package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge/audit"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// Cmd is about how long runs are kept.
type Cmd struct {
	Plan  PlanCmd  `cmd:"" help:"Say what would be removed now; change nothing."`
	Run   RunCmd   `cmd:"" help:"Remove now what is due."`
	Show  ShowCmd  `cmd:"" help:"Show what tenants have of their own."`
	Set   SetCmd   `cmd:"" help:"Give a tenant times of its own."`
	Clear ClearCmd `cmd:"" help:"Take a tenant's own times away."`
}

// PlanCmd is the dry run.
type PlanCmd struct {
	archive.StoreFlags
	RetentionFlags
	Runs bool `help:"Name each run."`
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run prints the plan.
func (c *PlanCmd) Run(ctx context.Context, log *slog.Logger) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	return c.With(ctx, log, func(s *archive.CommandStore) error {
		plan, err := retention.MakePlan(ctx, s.Survey, policy, time.Now(), c.Runs)
		if err != nil {
			return err
		}
		return c.table(plan)
	})
}

func (c *PlanCmd) table(plan retention.Plan) error {
	if c.JSON || len(plan.Groups) == 0 {
		return c.Print(c.JSON, plan, "nothing is due")
	}
	list := c.List(false, "", "TENANT", "STATE", "WHAT", "RUNS", "ROWS", "BYTES", "BLOBS", "BLOB BYTES")
	for _, g := range plan.Groups {
		if err := list.Add(nil, g.Tenant, g.State, g.What, g.Runs, g.Rows, g.Bytes, g.Blobs, g.Blob); err != nil {
			return err
		}
	}
	if err := list.Close(); err != nil {
		return err
	}
	if len(plan.Days) > 0 {
		fmt.Fprintf(c.Stdout(), "partitions that would be dropped whole: %s\n", strings.Join(plan.Days, " "))
	}
	for _, g := range plan.Groups {
		for _, id := range g.IDs {
			fmt.Fprintf(c.Stdout(), "%s %s/%s\n", g.What, g.Tenant, id)
		}
	}
	return nil
}

// RunCmd does one pass.
type RunCmd struct {
	cli.NATSFlags
	archive.StoreFlags
	archive.BlobFlags
	RetentionFlags
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run passes until everything that is due is done.
func (c *RunCmd) Run(ctx context.Context, log *slog.Logger) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	_, cfg, done, err := openKeeping(ctx, &c.NATSFlags, &c.StoreFlags, &c.BlobFlags, policy, log)
	if err != nil {
		return err
	}
	defer done()
	k, err := retention.New(cfg)
	if err != nil {
		return err
	}
	r, err := k.Pass(ctx)
	if err != nil {
		return err
	}
	err = c.Print(c.JSON, r, "removed: %d runs, %d events, %d partitions, %d blobs, %d messages, %d tombstones; rows of %d runs; %v",
		r.Expired+r.Deleted, r.Events, r.Days, r.Blobs, r.Messages, r.Tombstones, r.Cooled, r.Took.Round(time.Millisecond))
	switch {
	case err != nil:
		return err
	case r.Failed > 0:
		return fmt.Errorf("%d things could not be removed and stay marked; run it again", r.Failed)
	case r.More:
		return errors.New("the time was over before everything was done; run it again")
	}
	return nil
}

// openKeeping opens everything that a removal needs.
func openKeeping(ctx context.Context, n *cli.NATSFlags, k *archive.StoreFlags, b *archive.BlobFlags,
	policy retention.Policy, log *slog.Logger) (*archive.CommandStore, retention.Config, func(), error) {
	objects, err := b.Beside(k.Data).OpenBlobs()
	if err != nil {
		return nil, retention.Config{}, nil, err
	}
	nc, err := n.Dial("retention", log)
	if err != nil {
		return nil, retention.Config{}, nil, err
	}
	purger, err := natsjs.NewPurger(ctx, nc, natskit.KeysBucket)
	if err != nil {
		nc.Close()
		return nil, retention.Config{}, nil, err
	}
	s, done, err := k.Open(ctx, log)
	if err != nil {
		nc.Close()
		return nil, retention.Config{}, nil, err
	}
	return s, ConfigFor(s.Keep, s.Rows, purger, objects, policy, retention.Hooks{},
		log), func() { done(); nc.Close() }, nil
}

// ShowCmd lists tenants with times of their own.
type ShowCmd struct {
	archive.StoreFlags
	JSON bool `name:"json" help:"Print one JSON object per line."`
}

// Run lists.
func (c *ShowCmd) Run(ctx context.Context, log *slog.Logger) error {
	return c.With(ctx, log, func(s *archive.CommandStore) error {
		all, err := s.Survey.Overrides(ctx)
		if err != nil {
			return err
		}
		list := c.List(c.JSON, "no tenant has times of its own", "TENANT", "COMPLETED", "ENDED")
		for _, tenant := range slices.Sorted(maps.Keys(all)) {
			o := all[tenant]
			done, ended := ownDays(o.Completed), ownDays(o.Ended)
			if err := list.Add(map[string]string{"tenant": tenant, "completed": done, "ended": ended}, tenant, done,
				ended); err != nil {
				return err
			}
		}
		return list.Close()
	})
}

func ownDays(n *int) string {
	switch {
	case n == nil:
		return "default"
	case *n == persister.KeepForEver:
		return "never"
	}
	return strconv.Itoa(*n) + "d"
}

// SetCmd sets a tenant's times.
type SetCmd struct {
	archive.SettingFlags
	Tenant    string `arg:"" help:"Tenant."`
	Completed string `help:"For runs in state done: days (90d), never, or default." placeholder:"TIME"`
	Ended     string `help:"For runs in state error or aborted." placeholder:"TIME"`
}

// Run sets.
func (c *SetCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return err
	}
	if c.Completed == "" && c.Ended == "" {
		return errors.New("--completed or --ended is required")
	}
	line := audit.Line{Action: audit.Retained, Detail: "completed " + c.Completed + ", ended " + c.Ended}
	return c.Set(ctx, c.Tenant, "retention set", line, log, func(s *archive.CommandStore) error {
		all, err := s.Survey.Overrides(ctx)
		if err != nil {
			return err
		}
		o := all[c.Tenant]
		if o.Completed, err = parseOwn("--completed", c.Completed, o.Completed); err != nil {
			return err
		}
		if o.Ended, err = parseOwn("--ended", c.Ended, o.Ended); err != nil {
			return err
		}
		return s.Settings.SetOverride(ctx, c.Tenant, o)
	})
}

// parseOwn reads a number of days; "" leaves it as it is.
func parseOwn(flag, text string, is *int) (*int, error) {
	n := persister.KeepForEver
	switch text {
	case "":
		return is, nil
	case "default":
		return nil, nil
	case "never":
		return &n, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "d"))
	if err != nil || n < 0 || n > 36500 || !strings.HasSuffix(text, "d") {
		return nil, fmt.Errorf("%s must be a number of days (90d), never or default, not %q", flag, text)
	}
	return &n, nil
}

// ClearCmd takes a tenant's times away.
type ClearCmd struct {
	archive.SettingFlags
	Tenant string `arg:"" help:"Tenant."`
}

// Run clears.
func (c *ClearCmd) Run(ctx context.Context, log *slog.Logger) error {
	line := audit.Line{Action: audit.Retained, Detail: "as all tenants"}
	return c.Set(ctx, c.Tenant, "retention clear", line, log, func(s *archive.CommandStore) error {
		return s.Settings.SetOverride(ctx, c.Tenant, persister.Override{})
	})
}
