package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge/audit"
	"agentstream/schema"
)

// KeysCmd holds the commands on keys.
type KeysCmd struct {
	List   ListKeysCmd `cmd:"" help:"List the keys of tenants."`
	Create CreateCmd   `cmd:"" help:"Make the key of a tenant whose content is to be encrypted."`
	Rotate RotateCmd   `cmd:"" help:"Add a version to a tenant's key, with which new content is encrypted; older content stays readable."`
	Delete DeleteCmd   `cmd:"" help:"Delete a tenant's key for ever: nothing that was encrypted with it can be read again, in no backup either."`
}

// ChangeFlags are those of commands that change a key.
type ChangeFlags struct {
	cli.KeyFlags
	archive.AuditFlags
	cli.NATSFlags
	cli.Streams `kong:"-"`
	Tenant      string `help:"Tenant whose key it is." required:"" placeholder:"ID"`
}

// change records what is done to a key, and does it.
func (c *ChangeFlags) change(ctx context.Context, command, detail string, log *slog.Logger,
	do func(cli.KeyService) error) error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return fmt.Errorf("--tenant: %w", err)
	}
	service, err := c.Service()
	if err != nil {
		return err
	}
	line := audit.Line{Action: audit.Keyed, Detail: detail}
	if err := c.RecordIfReachable(ctx, &c.NATSFlags, &c.Streams, c.Tenant, command, line, log); err != nil {
		return err
	}
	return do(service)
}

// CreateCmd makes a key.
type CreateCmd struct{ ChangeFlags }

// Run makes it.
func (c *CreateCmd) Run(ctx context.Context, log *slog.Logger) error {
	return c.change(ctx, "keys create", "encryption key made", log, func(s cli.KeyService) error {
		return s.Create(ctx, c.Tenant)
	})
}

// RotateCmd adds a version.
type RotateCmd struct{ ChangeFlags }

// Run adds it.
func (c *RotateCmd) Run(ctx context.Context, log *slog.Logger) error {
	return c.change(ctx, "keys rotate", "encryption key rotated", log, func(s cli.KeyService) error {
		return s.Rotate(ctx, c.Tenant)
	})
}

// DeleteCmd deletes a key.
type DeleteCmd struct {
	ChangeFlags
	Yes bool `help:"Do it. Nothing brings the content back."`
}

// Run deletes it.
func (c *DeleteCmd) Run(ctx context.Context, log *slog.Logger) error {
	if !c.Yes {
		return errors.New("keys delete: everything that is encrypted for the tenant is lost, in all backups too; say --yes if that is meant")
	}
	return c.change(ctx, "keys delete", "encryption key deleted", log, func(s cli.KeyService) error {
		return s.Delete(ctx, c.Tenant)
	})
}

// ListKeysCmd lists keys.
type ListKeysCmd struct {
	cli.KeyFlags
	cli.Streams `kong:"-"`
	JSON        bool `name:"json" help:"Print JSON, an object a line."`
}

// Run lists them.
func (c *ListKeysCmd) Run(ctx context.Context) error {
	service, err := c.Service()
	if err != nil {
		return err
	}
	keys, err := service.List(ctx)
	if err != nil {
		return err
	}
	list := c.List(c.JSON, "no tenant has a key", "TENANT", "VERSION", "MADE")
	for _, k := range keys {
		made, version := "", any(k.Version)
		if !k.Made.IsZero() {
			made = k.Made.UTC().Format(time.RFC3339)
		}
		if k.Version == 0 {
			version = "deleted"
		}
		err := list.Add(map[string]any{"tenant": k.Tenant, "version": k.Version, "deleted": k.Version == 0, "made": made},
			k.Tenant, version, made)
		if err != nil {
			return err
		}
	}
	return list.Close()
}
