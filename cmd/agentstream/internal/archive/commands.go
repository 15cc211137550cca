package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister/blob"
	"agentstream/schema"
)

// Cmd is about runs that are kept as objects.
type Cmd struct {
	Runs   RunsCmd   `cmd:"" help:"List the runs of all tenants, from the tables."`
	List   ListCmd   `cmd:"" help:"List objects."`
	Verify VerifyCmd `cmd:"" help:"Read objects whole and compare them with their check sums."`
	Run    RunCmd    `cmd:"" help:"Archive runs now."`
	Audit  AuditCmd  `cmd:"" help:"Look for objects that no run needs."`

	Restore RestoreCmd `cmd:"" help:"Build rows and runs in the tables from objects, after the tables or the objects came back older."`
}

var errNoBlobs = errors.New("--blobs (or AGENTSTREAM_BLOBS) is required")

// requireBlobs returns an error unless --blobs was given.
func requireBlobs(b *Blobs, err error) (*Blobs, error) {
	if err == nil && b == nil {
		err = errNoBlobs
	}
	return b, err
}

// ListCmd lists objects.
type ListCmd struct {
	BlobFlags
	Prefix string `arg:"" optional:"" help:"Only objects whose names begin so: TENANT/DAY/RUN."`
	JSON   bool   `name:"json" help:"Print one JSON object per line."`

	cli.Streams `kong:"-"`
}

// Run lists.
func (c *ListCmd) Run(ctx context.Context) error {
	b, err := requireBlobs(c.open(blob.ExistingFolder)) // a misspelt folder is no empty archive
	if err != nil {
		return err
	}
	list := c.List(c.JSON, "no such objects", "STORED", "BYTES", "NAME")
	for o, err := range b.List(ctx, c.Prefix) {
		if err != nil {
			return err
		}
		at := o.Modified.UTC().Format("2006-01-02T15:04:05Z")
		if err := list.Add(map[string]any{"name": o.Name, "bytes": o.Size, "stored_at": at}, at, o.Size,
			printable(o.Name)); err != nil {
			return err
		}
	}
	return list.Close()
}

// printable keeps what others have named from steering a terminal.
func printable(name string) string {
	if err := blob.ValidName(name); err != nil {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// VerifyCmd reads objects.
type VerifyCmd struct {
	BlobFlags
	Prefix string `arg:"" optional:"" help:"Only objects whose names begin so: TENANT/DAY/RUN."`
	JSON   bool   `name:"json" help:"Print one JSON object per object that was read."`

	cli.Streams `kong:"-"`
}

// Run reads all objects, prints which are damaged, and fails when one is.
func (c *VerifyCmd) Run(ctx context.Context) error {
	b, err := requireBlobs(c.open(blob.ExistingFolder)) // a misspelt folder is no empty archive
	if err != nil {
		return err
	}
	good, bad := 0, 0
	for o, err := range b.List(ctx, c.Prefix) {
		if err != nil {
			return err
		}
		what, err := verifyObject(ctx, b, o.Name)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			bad++
			err = c.Print(c.JSON, map[string]string{"name": o.Name, "error": err.Error()}, "BAD\t%s\t%v", printable(o.Name), err)
		} else {
			good++
			err = c.Print(c.JSON, map[string]string{"name": o.Name, "holds": strings.ReplaceAll(what, "\t", ", ")},
				"ok\t%s\t%s", o.Name, what)
		}
		if err != nil {
			return err
		}
	}
	if good+bad == 0 && !c.JSON {
		c.Notice("no such objects")
	}
	if bad > 0 {
		return fmt.Errorf("archive: %d objects are damaged or cannot be read, %d are whole", bad, good)
	}
	return nil
}

// verifyObject reads an object, of a run's events or of a blob, and returns what it holds.
func verifyObject(ctx context.Context, b *Blobs, name string) (string, error) {
	if _, _, ref, err := blob.ParseLargeName(name); err == nil {
		n, err := blob.VerifyLarge(ctx, b.ObjectStore, name)
		return fmt.Sprintf("blob\t%d bytes\t%s", n, ref), err
	}
	ix, err := blob.Verify(ctx, b.ObjectStore, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d events\t%d bytes\t%s", ix.Events, ix.Bytes, ix.SHA256), nil
}

// TablesFlags say where the tables are beside the objects.
type TablesFlags struct {
	ArchiverFlags
	StoreFlags
}

// openArchiver opens tables and objects.
func (f *TablesFlags) openArchiver(ctx context.Context, log *slog.Logger) (*blob.Archiver, blob.Tables, func(), error) {
	b, err := requireBlobs(f.Beside(f.Data).OpenBlobs())
	if err != nil {
		return nil, nil, nil, err
	}
	s, done, err := OpenStore(ctx, f.Postgres, f.Data, log)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := f.NewArchiver(s.Rows, s.ended, nil, b, blob.Hooks{}, log)
	if err != nil {
		done()
	}
	return a, s.Rows, done, err
}

// RunCmd archives runs.
type RunCmd struct {
	TablesFlags
	Tenant string   `help:"Tenant of the runs." default:"default" env:"AGENTSTREAM_TENANT"`
	Runs   []string `arg:"" name:"run" help:"Runs to archive; each must have ended."`
	JSON   bool     `name:"json" help:"Print one JSON object per run."`
}

// Run archives each run and prints where it is.
func (c *RunCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return fmt.Errorf("--tenant: %w", err)
	}
	for _, run := range c.Runs {
		if err := schema.ValidRunID(run); err != nil {
			return fmt.Errorf("RUN: %w", err)
		}
	}
	a, tables, done, err := c.openArchiver(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	for _, run := range c.Runs {
		key := schema.RunKey{Tenant: c.Tenant, Run: run}
		if err := a.One(ctx, key); err != nil {
			return err
		}
		place, err := tables.Place(ctx, key)
		if err != nil {
			return err
		}
		if place.URI == "" || place.Archived != place.Last {
			return fmt.Errorf("archive: run %s is not there, has not ended, or has expired", run)
		}
		events := place.Archived - place.Expired
		if err := c.Print(c.JSON, map[string]any{"run_id": run, "events": events, "uri": place.URI},
			"%s\t%d events\t%s", run, events, place.URI); err != nil {
			return err
		}
	}
	return nil
}

// AuditCmd looks for orphans.
type AuditCmd struct {
	TablesFlags
	Remove bool `help:"Remove them. What may be the only copy of something stays."`
	JSON   bool `name:"json" help:"Print one JSON object."`
}

// Run audits once.
func (c *AuditCmd) Run(ctx context.Context, log *slog.Logger) error {
	a, _, done, err := c.openArchiver(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	r, err := a.Audit(ctx, c.Remove)
	if err != nil {
		return err
	}
	return c.Print(c.JSON, map[string]int{"objects": r.Objects, "unneeded": r.Removed, "unknown": r.Unknown},
		"%d objects, %d that no run needs, %d of which the tables know nothing", r.Objects, r.Removed, r.Unknown)
}
