package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/persister/blob"
	"agentstream/persister/export"
	"agentstream/schema"
	"agentstream/schema/seal"
)

// ExportCmd writes runs out of the archive into files.
type ExportCmd struct {
	cli.PostgresFlags
	archive.BlobFlags
	cli.KeyFlags
	Data string `help:"Folder of a dev server, whose archive is read instead of PostgreSQL; it may run." type:"path" placeholder:"FOLDER"`

	Runs       []string          `arg:"" optional:"" name:"run" help:"Runs to export; none: all that the filters name."`
	Tenant     string            `help:"Tenant whose runs are exported." default:"default" env:"AGENTSTREAM_TENANT"`
	AllTenants bool              `help:"Export the runs of every tenant."`
	State      []schema.RunState `help:"Only runs in one of these states." placeholder:"STATE"`
	Since      string            `help:"Only runs that began then or later: a time (RFC 3339) or so long ago (90m, 24h)." placeholder:"TIME"`
	Until      string            `help:"Only runs that began before." placeholder:"TIME"`

	Out         string `name:"output" short:"o" required:"" help:"Where to: a folder, one file (.jsonl, .jsonl.gz, .jsonl.zst, .parquet), or - for standard output." placeholder:"PATH"`
	Format      string `help:"jsonl: the events as they are stored. parquet: a table for analytics. Default: by the file's name; jsonl in a folder." enum:",jsonl,parquet" default:""`
	Table       string `help:"What of Parquet: events, messages (with their text), tool_calls, runs." enum:"events,messages,tool_calls,runs" default:"events"`
	Compress    string `help:"Compression of JSONL in a folder or on standard output: none, gz, zst." enum:"none,gz,zst" default:"none"`
	RowsPerFile int64  `help:"Rows after which another Parquet file begins, in a folder." default:"1000000"`
	Resume      bool   `help:"Go on with a folder: what its manifest names stays, and what has come to runs since is exported too."`
	Quiet       bool   `short:"q" help:"Show no progress and no summary."`
	JSON        bool   `name:"json" help:"Print the summary as one JSON object; not together with -o -."`

	cli.Streams `kong:"-"`
	// Screen overrides what is found out about the standard error. Nil looks.
	Screen *terminal.Screen `kong:"-"`
	// archive wraps the source, for tests. Nil leaves it as it is.
	archive func(export.Source) export.Source `kong:"-"`
}

// Run exports until all is written. When ctx ends, what is whole stays, and that is an error: not
// everything is there.
func (c *ExportCmd) Run(ctx context.Context, log *slog.Logger) error {
	cfg, err := c.config(time.Now())
	if err != nil {
		return err
	}
	source, closeStore, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer closeStore()
	cfg.Source = source
	if c.archive != nil {
		cfg.Source = c.archive(source)
	}
	m := newExportMeter(c.Stderr(), c.screen(), c.Quiet)
	cfg.Hooks = m.hooks()
	sum, err := export.Run(ctx, cfg)
	m.Clear()
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader of our output has seen enough
	case err != nil && ctx.Err() != nil:
		return c.interruptError(sum)
	case errors.Is(err, export.ErrManifest) && !c.Resume:
		return fmt.Errorf("%w; --resume goes on with it", err)
	case err != nil:
		return err
	}
	m.summary(sum)
	if c.JSON {
		if err := c.Print(true, map[string]any{"runs": sum.Runs, "skipped": sum.Skipped, "gone": sum.Gone,
			"short": sum.Short, "rows": sum.Rows,
			"events": sum.Events, "files": sum.Files, "bytes": sum.Bytes}, ""); err != nil {
			return err
		}
	}
	if sum.Short > 0 {
		return fmt.Errorf("export: %d runs: %w", sum.Short, errExportShort)
	}
	return nil
}

var errExportShort = errors.New("events that the archive should have are not there")

// interruptError reports how much is whole after an interruption.
func (c *ExportCmd) interruptError(sum export.Summary) error {
	if sum.Files == 0 {
		return errors.New("export: interrupted: no file is whole")
	}
	return fmt.Errorf("export: interrupted: %d files are whole; --resume goes on behind them", sum.Files)
}

// config turns the flags into a question; its errors name them.
func (c *ExportCmd) config(now time.Time) (cfg export.Config, err error) {
	if err := c.checkSelection(); err != nil {
		return cfg, err
	}
	cfg = export.Config{Table: c.Table, RowsPerFile: c.RowsPerFile, Resume: c.Resume, Format: c.Format,
		Compression: c.Compress,
		Selection:   export.Selection{Tenant: c.Tenant, AllTenants: c.AllTenants, IDs: c.Runs}}
	q := &cfg.Selection.Query
	for _, s := range c.State {
		if !slices.Contains(q.States, s) {
			q.States = append(q.States, s)
		}
	}
	if q.Since, err = cli.ParseSince("--since", c.Since, now); err != nil {
		return cfg, err
	}
	if q.Until, err = cli.ParseSince("--until", c.Until, now); err != nil {
		return cfg, err
	}
	err = c.target(&cfg)
	return cfg, err
}

func (c *ExportCmd) checkSelection() error {
	if err := schema.ValidTenant(c.Tenant); err != nil {
		return fmt.Errorf("--tenant: %w", err)
	}
	for _, run := range c.Runs {
		if err := schema.ValidRunID(run); err != nil {
			return fmt.Errorf("RUN: %w", err)
		}
	}
	for _, s := range c.State {
		if !slices.Contains(runStates, s) {
			return fmt.Errorf("--state must be one of %s, not %q", strings.Trim(fmt.Sprint(runStates), "[]"), s)
		}
	}
	switch {
	case len(c.Runs) > 0 && (c.AllTenants || len(c.State) > 0 || c.Since != "" || c.Until != ""):
		return errors.New("runs are named, or chosen by --all-tenants, --state, --since and --until; not both")
	case c.RowsPerFile < 1:
		return fmt.Errorf("--rows-per-file must be 1 or more, not %d", c.RowsPerFile)
	}
	return nil
}

var runStates = []schema.RunState{"planning", "awaiting_approval", "running", "paused", "redirecting", "done",
	"aborted", "error"}

// target finds out what -o is. A name without one of the known endings is a folder.
func (c *ExportCmd) target(cfg *export.Config) error {
	format, compression := "", export.CompressNone
	switch {
	case strings.HasSuffix(c.Out, ".parquet"):
		format = export.FormatParquet
	case strings.HasSuffix(c.Out, ".jsonl"):
		format = export.FormatJSONL
	case strings.HasSuffix(c.Out, ".jsonl.gz"):
		format, compression = export.FormatJSONL, export.CompressGzip
	case strings.HasSuffix(c.Out, ".jsonl.zst"):
		format, compression = export.FormatJSONL, export.CompressZstd
	}
	info, err := os.Stat(c.Out)
	if c.Out != "-" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output: %w", err)
	}
	folder := c.Out != "-" && (format == "" || err == nil && info.IsDir())
	switch {
	case folder && err == nil && !info.IsDir():
		return fmt.Errorf("--output %s: is a file whose name does not end in .jsonl, .jsonl.gz, .jsonl.zst or .parquet",
			c.Out)
	case folder:
		cfg.Target.Dir = c.Out
	case c.Out == "-":
		cfg.Target.Stream = c.Stdout()
	default:
		cfg.Target.File = c.Out
		if c.Format != "" && c.Format != format {
			return fmt.Errorf("--format %s: the name of --output says %s", c.Format, format)
		}
		cfg.Format, cfg.Compression = format, compression
	}
	cfg.Format = cmp.Or(cfg.Format, export.FormatJSONL)
	switch parquet := cfg.Format == export.FormatParquet; {
	case !parquet && cfg.Table != export.TableEvents:
		return fmt.Errorf("--table %s: is for --format parquet; JSONL is the events", cfg.Table)
	case parquet && cfg.Compression != export.CompressNone:
		return errors.New("--compress: Parquet is compressed inside")
	case c.JSON && c.Out == "-":
		return errors.New("--json: the standard output is for the events already")
	case cfg.Resume && cfg.Target.Dir == "":
		return errors.New("--resume: only a folder can be resumed")
	case cfg.Selection.AllTenants && !parquet && cfg.Target.Dir == "":
		return errors.New("--all-tenants: lines do not name their tenant; export into a folder, or as Parquet")
	}
	return nil
}

// open opens the archive for reading. It is not created, and not migrated: whoever asks for files does
// not expect a database to change.
func (c *ExportCmd) open(ctx context.Context, log *slog.Logger) (export.Source, func(), error) {
	s, done, err := archive.OpenStore(ctx, c.Postgres, c.Data, log)
	if err != nil {
		return nil, nil, err
	}
	source, err := c.joinObjects(s)
	if err != nil {
		done()
	}
	return source, done, err
}

// exported is a source whose events may have left the tables.
type exported struct {
	*blob.Archive
	archive.RunLists
	keys *seal.Keys
}

// Packs implements export.Source.
func (e exported) Packs(ctx context.Context, key schema.RunKey, after,
	through schema.Seq) iter.Seq2[schema.Pack, error] {
	return e.keys.OpenAll(ctx, e.Archive.Packs(ctx, key, after, through))
}

// joinObjects adds the objects to a store.
func (c *ExportCmd) joinObjects(s *archive.CommandStore) (export.Source, error) {
	b, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return nil, err
	}
	all, err := archive.Join(s.Rows, b)
	keys, kerr := c.OpenKeys()
	return exported{all, s.Lists, keys}, errors.Join(err, kerr)
}

func (c *ExportCmd) screen() terminal.Screen {
	if c.Screen != nil {
		return *c.Screen
	}
	return terminal.ScreenOf(c.Stderr(), os.LookupEnv)
}
