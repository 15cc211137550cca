package retention

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister/blob"
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
	Yes  bool `help:"Do not ask."`
	JSON bool `name:"json" help:"Print one JSON object."`
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
	return c.remove(ctx, log, c.RunID, func(d *retention.Deleter) (retention.Deleted, error) { return d.Run(ctx, key) })
}

// DeleteTenantCmd removes a tenant.
type DeleteTenantCmd struct {
	DeleteFlags
	Tenant string `arg:"" help:"Tenant."`
}

// Run removes the tenant and looks whether anything is left.
func (c *DeleteTenantCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return err
	}
	return c.remove(ctx, log, c.Tenant, func(d *retention.Deleter) (retention.Deleted, error) {
		return d.Tenant(ctx, c.Tenant, func(done int) {
			if done%1000 == 0 {
				c.Notice("%d runs removed", done)
			}
		})
	})
}

func (c *DeleteFlags) remove(ctx context.Context, log *slog.Logger, name string, fn func(*retention.Deleter) (retention.Deleted, error)) error {
	if err := c.confirm(name); err != nil {
		return err
	}
	s, cfg, done, err := openKeeping(ctx, &c.NATSFlags, &c.StoreFlags, &c.BlobFlags, retention.Policy{}, log)
	if err != nil {
		return err
	}
	defer done()
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
	err = c.Print(c.JSON, r, "removed: %d runs, %d events, %d blobs, %d messages, %d idempotency keys, %d dead letters\nleft: %s",
		r.Runs, r.Events, r.Blobs, r.Messages, r.Keys, r.Letters, leftOf(r))
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

func leftOf(r retention.Deleted) string {
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
