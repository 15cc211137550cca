package retention

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/persister/blob"
	"agentstream/persister/natsjs"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// DeleteCmd removes runs everywhere, at once.
type DeleteCmd struct {
	Run    DeleteRunCmd    `cmd:"" help:"Remove a run everywhere: rows, blob, log, keys, dead letters."`
	Tenant DeleteTenantCmd `cmd:"" help:"Remove all runs of a tenant, and what was set for it."`
}

// DeleteFlags are those of both.
type DeleteFlags struct {
	cli.NATSFlags
	archive.StoreFlags
	archive.BlobFlags
	archive.AuditFlags
	PurgeBlocks bool `name:"purge-blocks" help:"Also have the NATS servers overwrite each message before it is removed: what is only removed stays readable in their files until the block that holds it goes. Slow: a request and a block for each message."`
	Yes         bool `help:"Do not ask."`
	JSON        bool `name:"json" help:"Print one JSON object."`
}

// DeleteRunCmd removes a run.
type DeleteRunCmd struct {
	DeleteFlags
	Tenant string `arg:"" help:"Tenant."`
	RunID  string `arg:"" name:"run" help:"Run."`
}

// Run removes the run and looks whether anything is left.
func (c *DeleteRunCmd) Run(ctx context.Context, log *slog.Logger) error {
	key := schema.RunKey{Tenant: c.Tenant, Run: c.RunID}
	if err := key.Validate(); err != nil {
		return err
	}
	return c.remove(ctx, log, key, func(d *retention.Deleter) (retention.Deleted, error) { return d.Run(ctx, key) })
}

// DeleteTenantCmd removes a tenant.
type DeleteTenantCmd struct {
	DeleteFlags
	Tenant  string `arg:"" help:"Tenant."`
	APIKeys string `name:"api-keys" help:"The edges' file of API keys: those of the tenant are taken out of it first." type:"path" env:"AGENTSTREAM_API_KEYS" placeholder:"FILE"`
}

// Run removes the tenant and looks whether anything is left.
func (c *DeleteTenantCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return err
	}
	return c.remove(ctx, log, schema.RunKey{Tenant: c.Tenant}, func(d *retention.Deleter) (retention.Deleted, error) {
		if err := c.endKeys(); err != nil {
			return retention.Deleted{}, err
		}
		return d.Tenant(ctx, c.Tenant, func(done int) {
			if done%1000 == 0 {
				c.Notice("%d runs removed", done)
			}
		})
	})
}

// endKeys takes the tenant's API keys out of the file of the edges, which read it again by themselves, or says that
// they let in as before.
func (c *DeleteTenantCmd) endKeys() error {
	if c.APIKeys == "" {
		c.Notice("API keys and tokens of %s still let in, and begin new runs: give --api-keys, and end the tokens at their issuer", c.Tenant)
		return nil
	}
	ended, err := auth.RemoveAPIKeys(c.APIKeys, c.Tenant)
	if err != nil {
		return fmt.Errorf("--api-keys: %w", err)
	}
	c.Notice("%d API keys of %s were taken out of %s; tokens end at their issuer", ended, c.Tenant, c.APIKeys)
	return nil
}

// remove has the audit feed of the tenant say who removes what, which must be there to go on, and removes it. A key
// without a run is the tenant.
func (c *DeleteFlags) remove(ctx context.Context, log *slog.Logger, key schema.RunKey,
	fn func(*retention.Deleter) (retention.Deleted, error)) error {
	if err := c.confirm(cmp.Or(key.Run, key.Tenant)); err != nil {
		return err
	}
	s, cfg, done, err := openKeeping(ctx, &c.NATSFlags, &c.StoreFlags, &c.BlobFlags, retention.Policy{}, log)
	if err != nil {
		return err
	}
	defer done()
	line, command := audit.Line{Action: audit.Deleted, Run: key.Run}, "delete run"
	if key.Run == "" {
		line.Run, command = "*", "delete tenant"
	}
	if err := c.Record(ctx, &c.NATSFlags, key.Tenant, command, line, log); err != nil {
		return err
	}
	if p, ok := cfg.Log.(*natsjs.Purger); ok && c.PurgeBlocks {
		p.EraseFirst()
	}
	missing := 0
	if b, ok := cfg.Blobs.(blob.Remover); ok {
		b.Missing = func(uri string) {
			missing++
			c.Notice("%s is not there", uri)
		}
		cfg.Blobs = b
	}
	d, err := retention.NewDeleter(cfg, s.Forget, s.Settings)
	if err != nil {
		return err
	}
	r, err := fn(d)
	if err != nil {
		return err
	}
	if !c.PurgeBlocks && r.Messages > 0 {
		c.Notice("removed messages stay readable in the files of the NATS servers until their blocks go; --purge-blocks overwrites them")
	}
	err = c.Print(c.JSON, r, "removed: %d runs, %d events, %d blobs, %d messages, %d idempotency keys, %d dead letters\nleft: %s",
		r.Runs, r.Events, r.Blobs, r.Messages, r.Keys, r.Letters, describeRest(r))
	if err == nil && !r.Clean() {
		err = errors.New("something is left; run it again")
		if cfg.Blobs == nil && r.Left.Scraps > 0 {
			err = errors.New("blobs are left: say where they are with --blobs, and run it again")
		}
	}
	if err == nil && missing > 0 {
		err = fmt.Errorf("%d blobs were not there: they were removed before, or are elsewhere than --blobs says; what is elsewhere is left", missing)
	}
	return err
}

// describeRest returns what is left of a tenant or a run that was deleted.
func describeRest(r retention.Deleted) string {
	if !r.Clean() {
		return fmt.Sprintf("%+v, in the log %d runs", r.Left, r.LeftInLog)
	}
	if r.Left.Marks > 0 {
		return fmt.Sprintf("nothing but %d marks, which go within the hour, when nothing of their runs can be under way", r.Left.Marks)
	}
	return "nothing"
}

// confirm has the name typed.
func (c *DeleteFlags) confirm(name string) error {
	if c.Yes {
		return nil
	}
	fmt.Fprintf(c.Stderr(), "This cannot be undone. Type %s to remove it everywhere: ", name)
	line, err := bufio.NewReader(io.LimitReader(c.Stdin(), 1024)).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(c.Stderr())
		return errors.New("nothing was typed, nothing is removed; --yes does not ask")
	}
	if strings.TrimSpace(line) != name {
		return errors.New("another name was typed, nothing is removed")
	}
	return nil
}
