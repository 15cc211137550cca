package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"agentstream/schema"
)

// Errors that callers can test for.
var (
	ErrNoRun    = errors.New("there is no such run")
	ErrManifest = errors.New("the manifest does not fit")
)

// Formats, tables, and compressions of JSONL.
const (
	FormatJSONL   = "jsonl"
	FormatParquet = "parquet"

	TableEvents    = "events"
	TableMessages  = "messages"
	TableToolCalls = "tool_calls"
	TableRuns      = "runs"

	CompressNone = "none"
	CompressGzip = "gz"
	CompressZstd = "zst"
)

// Target is where the export is written. Exactly one field must be set.
type Target struct {
	Dir    string    // one file per run, or Parquet files of RowsPerFile; with a manifest
	File   string    // everything is written to this file
	Stream io.Writer // everything is written to this
}

// Config configures an export. Source, Selection, Format and Target must be set.
type Config struct {
	Source      Source
	Selection   Selection
	Format      string
	Table       string // of Parquet; default TableEvents
	Compression string // of JSONL; default CompressNone. Parquet is compressed with zstd inside
	Target      Target
	RowsPerFile int64 // of Parquet in a folder; default 1,000,000. Other tables than events are cut between runs
	// Resume continues an export in a folder. Files in its manifest stay, runs in them are skipped, and newer events
	// of these runs are exported too.
	Resume bool
	Hooks  Hooks
}

// DefaultRowsPerFile is the default of Config.RowsPerFile.
const DefaultRowsPerFile = 1_000_000

func (c Config) withDefaults() Config {
	c.Table = cmp.Or(c.Table, TableEvents)
	c.Compression = cmp.Or(c.Compression, CompressNone)
	c.RowsPerFile = cmp.Or(c.RowsPerFile, DefaultRowsPerFile)
	return c
}

func (c *Config) validate() error {
	targets := 0
	for _, set := range []bool{c.Target.Dir != "", c.Target.File != "", c.Target.Stream != nil} {
		if set {
			targets++
		}
	}
	parquet := c.Format == FormatParquet
	switch {
	case c.Source == nil:
		return errors.New("export: config needs a source")
	case !parquet && c.Format != FormatJSONL:
		return fmt.Errorf("export: no format %q", c.Format)
	case !slices.Contains([]string{TableEvents, TableMessages, TableToolCalls, TableRuns}, c.Table):
		return fmt.Errorf("export: no table %q", c.Table)
	case !parquet && c.Table != TableEvents:
		return fmt.Errorf("export: the table %s is for Parquet; JSONL is the events", c.Table)
	case !slices.Contains([]string{CompressNone, CompressGzip, CompressZstd}, c.Compression):
		return fmt.Errorf("export: no compression %q", c.Compression)
	case parquet && c.Compression != CompressNone:
		return errors.New("export: Parquet is compressed inside")
	case targets != 1:
		return errors.New("export: config needs one target")
	case c.RowsPerFile < 1:
		return fmt.Errorf("export: %d rows per file", c.RowsPerFile)
	case c.Resume && c.Target.Dir == "":
		return errors.New("export: only a folder can be resumed")
	case !parquet && c.Selection.AllTenants && c.Target.Dir == "":
		return errors.New("export: lines do not name their tenant: all tenants need a folder, or Parquet")
	case c.Selection.AllTenants && len(c.Selection.IDs) > 0:
		return errors.New("export: runs are named within one tenant")
	}
	return nil
}

// Hooks are called about the progress. Nil hooks are skipped. They must return quickly.
type Hooks struct {
	// Planned is called when so many more runs and events are to be exported. last reports that no more will follow.
	Planned func(runs int, events int64, last bool)
	// Progress is called after every pack and at the end of every run.
	Progress func(Summary)
	// Short is called when a run is exported without some of its events: those before first, or those after through
	// although the store has recorded more. missing is true for the latter, which have not expired but cannot be
	// found.
	Short func(key schema.RunKey, first, through schema.Seq, missing bool)
}

// Summary counts what was done.
type Summary struct {
	Runs    int   // written
	Skipped int   // in the manifest already
	Gone    int   // deleted, or without events by the time they were exported
	Short   int   // written without events that the store should have
	Events  int64 // read
	Lines   int64 // bytes of the events read
	Rows    int64 // written
	Files   int
	Bytes   int64 // of files
}

// run is the run that is being written.
type run struct {
	job
	day  int32      // days since 1970
	skip schema.Seq // events up to this one are in the manifest
}

// table writes runs, one after the other.
type table interface {
	openRun(r *run) error
	pack(p *schema.Pack) error
	// closeRun ends a run of which the events up to through were written.
	closeRun(through schema.Seq) error
	// finish completes the open file, after the last run. rows is the number of rows written in total.
	finish() (rows int64, err error)
}

type exporter struct {
	cfg   Config
	out   *output
	table table
	sum   Summary
}

// Run exports, and returns what it has done, also with an error. When ctx ends, it leaves no incomplete file.
func Run(ctx context.Context, cfg Config) (sum Summary, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return sum, err
	}
	q := question{Format: cfg.Format}
	if cfg.Format == FormatParquet {
		q.Table = cfg.Table
	} else {
		q.Compression = cfg.Compression
	}
	out, err := openOutput(cfg.Target, q, cfg.Resume)
	if err != nil {
		return sum, fmt.Errorf("export: %w", err)
	}
	e := &exporter{cfg: cfg, out: out}
	e.table = newTable(cfg, out)
	err = e.all(ctx)
	if err == nil {
		e.sum.Rows, err = e.table.finish()
	}
	err = errors.Join(err, out.close())
	e.progress()
	if err != nil {
		return e.sum, fmt.Errorf("export: %w", err)
	}
	return e.sum, nil
}

func newTable(cfg Config, out *output) table {
	switch {
	case cfg.Format == FormatJSONL:
		return &lines{out: out, compression: cfg.Compression}
	case cfg.Table == TableMessages:
		return newFolded(newParquet[MessageRow](out, cfg), messageRows)
	case cfg.Table == TableToolCalls:
		return newFolded(newParquet[ToolCallRow](out, cfg), toolCallRows)
	case cfg.Table == TableRuns:
		return &runs{rows: newParquet[RunRow](out, cfg)}
	}
	return &events{rows: newParquet[EventRow](out, cfg)}
}

func (e *exporter) all(ctx context.Context) error {
	infos := e.cfg.Table == TableRuns
	for b, err := range e.cfg.Selection.batches(ctx, e.cfg.Source, infos) {
		if err != nil {
			return err
		}
		if e.cfg.Hooks.Planned != nil {
			events := int64(0)
			for _, j := range b.jobs {
				if !infos && e.out.done[j.key] < j.info.Last {
					events += int64(j.info.Last)
				}
			}
			e.cfg.Hooks.Planned(len(b.jobs), events, b.last)
		}
		for _, j := range b.jobs {
			if err := e.one(ctx, j); err != nil {
				return fmt.Errorf("run %s: %w", j.key, err)
			}
			e.progress()
		}
	}
	return nil
}

func (e *exporter) progress() {
	e.sum.Files, e.sum.Bytes = e.out.files, e.out.bytes
	if e.cfg.Hooks.Progress != nil {
		e.cfg.Hooks.Progress(e.sum)
	}
}

// one exports one run.
func (e *exporter) one(ctx context.Context, j job) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	head, err := e.cfg.Source.Head(ctx, j.key, "")
	if err != nil {
		return err
	}
	done := e.out.done[j.key]
	switch {
	case !head.HasEvents():
		e.sum.Gone++
		return nil
	case done >= head.Last:
		e.sum.Skipped++
		return nil
	}
	r := &run{job: j, day: dayNumber(head.Day), skip: done}
	r.info.Last = head.Last
	if e.cfg.Table == TableRuns {
		e.sum.Runs++
		return errors.Join(e.table.openRun(r), e.table.closeRun(head.Last))
	}
	return e.walk(ctx, r)
}

// walk reads the run's events. It begins with the first event even when some are written already: a row may depend on
// earlier events.
func (e *exporter) walk(ctx context.Context, r *run) error {
	last := schema.Seq(0)
	for p, err := range e.cfg.Source.Packs(ctx, r.key, 0, r.info.Last) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if last == 0 {
			if p.First > 1 {
				e.short(r.key, p.First, 0, false)
			}
			if err := e.table.openRun(r); err != nil {
				return err
			}
		} else if p.First != last+1 {
			return fmt.Errorf("events %d to %d are not there, those behind are", last+1, p.First-1)
		}
		last = p.Last()
		if err := e.table.pack(&p); err != nil {
			return err
		}
		e.sum.Events += int64(p.Count)
		e.sum.Lines += int64(len(p.Body))
		e.progress()
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if last == 0 {
		e.sum.Gone++
		return nil
	}
	if last < r.info.Last {
		e.sum.Short++
		e.short(r.key, 0, last, true)
	}
	e.sum.Runs++
	return e.table.closeRun(last)
}

func (e *exporter) short(key schema.RunKey, first, through schema.Seq, missing bool) {
	if e.cfg.Hooks.Short != nil {
		e.cfg.Hooks.Short(key, first, through, missing)
	}
}
