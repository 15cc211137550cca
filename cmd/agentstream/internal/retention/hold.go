package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge/audit"
	"agentstream/schema"
)

// HoldCmd is about legal holds.
type HoldCmd struct {
	Add    HoldAddCmd    `cmd:"" help:"Keep a run, or a whole tenant, whatever else is said."`
	Remove HoldRemoveCmd `cmd:"" help:"Lift a hold."`
	List   HoldListCmd   `cmd:"" help:"List holds."`
}

// HoldAddCmd places a hold.
type HoldAddCmd struct {
	archive.SettingFlags
	Tenant string `arg:"" help:"Tenant."`
	RunID  string `arg:"" optional:"" name:"run" help:"Run; without one, the whole tenant."`
	Reason string `help:"Why: a case, a person." required:""`
}

// holdKey names what a hold is about.
func holdKey(tenant, run string) (schema.RunKey, error) {
	key := schema.RunKey{Tenant: tenant, Run: run}
	if run == "" {
		return key, schema.ValidTenant(tenant)
	}
	return key, key.Validate()
}

// Run places the hold.
func (c *HoldAddCmd) Run(ctx context.Context, log *slog.Logger) error {
	key, err := holdKey(c.Tenant, c.RunID)
	if err != nil {
		return err
	}
	line := audit.Line{Action: audit.Held, Run: c.RunID, Detail: "placed", Reason: c.Reason}
	return c.Set(ctx, c.Tenant, "hold add", line, log, func(s *archive.CommandStore) error {
		expired, err := s.Holds.AddHold(ctx, key, c.Reason)
		if err == nil && expired {
			c.Notice("the hold is placed, but events of run %s had expired or were deleted before", key)
		}
		return err
	})
}

// HoldRemoveCmd lifts a hold.
type HoldRemoveCmd struct {
	archive.SettingFlags
	Tenant string `arg:"" help:"Tenant."`
	RunID  string `arg:"" optional:"" name:"run" help:"Run; without one, the tenant's own hold."`
}

// Run lifts the hold.
func (c *HoldRemoveCmd) Run(ctx context.Context, log *slog.Logger) error {
	key, err := holdKey(c.Tenant, c.RunID)
	if err != nil {
		return err
	}
	line := audit.Line{Action: audit.Held, Run: c.RunID, Detail: "lifted"}
	return c.Set(ctx, c.Tenant, "hold remove", line, log, func(s *archive.CommandStore) error {
		was, err := s.Holds.RemoveHold(ctx, key)
		if err == nil && !was {
			err = errors.New("there is no such hold")
		}
		return err
	})
}

// HoldListCmd lists holds.
type HoldListCmd struct {
	archive.StoreFlags
	Tenant string `arg:"" optional:"" help:"Only of this tenant."`
	JSON   bool   `name:"json" help:"Print one JSON object per line."`
}

// Run lists.
func (c *HoldListCmd) Run(ctx context.Context, log *slog.Logger) error {
	return c.With(ctx, log, func(s *archive.CommandStore) error {
		holds, err := s.Settings.Holds(ctx, c.Tenant)
		if err != nil {
			return err
		}
		list := c.List(c.JSON, "no holds", "TENANT", "RUN", "PLACED", "REASON")
		for _, h := range holds {
			placed := h.Placed.UTC().Format(time.RFC3339)
			v := map[string]string{"tenant": h.Key.Tenant, "run": h.Key.Run, "placed_at": placed, "reason": h.Reason}
			if err := list.Add(v, h.Key.Tenant, cmp.Or(h.Key.Run, "(all)"), placed, strconv.Quote(h.Reason)); err != nil {
				return err
			}
		}
		return list.Close()
	})
}
