package redaction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister/scrub"
	"agentstream/schema"
	"agentstream/schema/redact"
)

// RedactCmd checks rules, tries them on archived runs, and applies them to all that is stored.
type RedactCmd struct {
	archive.StoreFlags
	archive.BlobFlags
	cli.NATSFlags
	archive.AuditFlags
	Tenant   string   `arg:"" optional:"" help:"Tenant whose runs are looked at; without one, all."`
	Runs     []string `arg:"" optional:"" name:"run" help:"Runs of the tenant; none: all."`
	Check    string   `help:"Read this file of rules as a server does, print what it holds, and stop." type:"path" placeholder:"FILE"`
	Redact   string   `help:"File with the rules." type:"path" env:"AGENTSTREAM_REDACT" placeholder:"FILE"`
	TextFile string   `name:"text-file" help:"File with one text to hide, instead of rules; - is standard input. A line feed at its end does not count." placeholder:"FILE"`
	DryRun   bool     `name:"dry-run" help:"Count what is found in archived runs. Nothing is changed."`
	Apply    bool     `help:"Hide what is found in all that is stored: rows, objects, the log, blobs and dead letters. This cannot be undone."`
	Since    string   `help:"Only runs that began on this day or later (UTC)." placeholder:"YYYY-MM-DD"`
	Until    string   `help:"Only runs that began on this day or earlier (UTC)." placeholder:"YYYY-MM-DD"`
	HoldsToo bool     `name:"holds-too" help:"With --apply: also runs under a legal hold, which stay as they are otherwise."`
	Vacuum   bool     `help:"With --apply: write the tables again afterwards, without what they held before. Each is locked meanwhile. A file of --data is always written again."`
	Yes      bool     `help:"With --apply: do not ask."`
	Each     bool     `name:"runs" help:"Name each run in which something is found."`
	JSON     bool     `name:"json" help:"Print one JSON object."`
}

// Found is what a rule has found.
type Found struct {
	Tenant string `json:"tenant"`
	Rule   string `json:"rule"`
	Runs   int    `json:"runs"`
	Count  int    `json:"count"`
}

// Report is the result of a dry run.
type Report struct {
	Runs    int      `json:"runs"`    // that were read
	Events  int      `json:"events"`  // of them
	Changed int      `json:"changed"` // events that would be others
	Found   []Found  `json:"found"`
	In      []string `json:"in,omitempty"` // runs with something, TENANT/RUN
	Sealed  int      `json:"sealed"`       // events that could not be looked into
}

// Run checks, or tries.
func (c *RedactCmd) Run(ctx context.Context, log *slog.Logger, open FolderOpener) error {
	if c.Check != "" {
		return c.check()
	}
	if c.DryRun == c.Apply {
		return errors.New("redact: --check FILE, or --redact FILE (or --text-file FILE) with --dry-run or --apply")
	}
	book, err := c.rules()
	if err != nil {
		return err
	}
	if err := c.days(); err != nil {
		return err
	}
	if c.Apply {
		return c.apply(ctx, log, book, open)
	}
	objects, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return err
	}
	return c.With(ctx, log, func(s *archive.CommandStore) error {
		history, err := s.History(objects)
		if err != nil {
			return err
		}
		t := trial{ctx: ctx, book: book, history: history, each: c.Each}
		w := tour{ctx: ctx, store: s, rules: book, since: c.Since, until: c.Until, run: t.run}
		if err := w.all(c.Tenant, c.Runs); err != nil {
			return err
		}
		return c.print(&t.report)
	})
}

// check reads a file of rules.
func (c *RedactCmd) check() error {
	book, err := redact.Load(c.Check)
	if err != nil {
		return fmt.Errorf("--check: %w", err)
	}
	list := c.List(c.JSON, "no tenant has rules", "TENANT", "RULES")
	for _, tenant := range book.Tenants() {
		names := book.Of(tenant).Names()
		if err := list.Add(map[string]any{"tenant": tenant, "rules": names}, tenant, strings.Join(names, " ")); err != nil {
			return err
		}
	}
	return list.Close()
}

func (c *RedactCmd) print(r *Report) error {
	if c.JSON {
		return c.Print(true, r, "")
	}
	list := c.List(false, "nothing is found", "TENANT", "RULE", "RUNS", "FOUND")
	for _, f := range r.Found {
		if err := list.Add(nil, f.Tenant, f.Rule, f.Runs, f.Count); err != nil {
			return err
		}
	}
	if err := list.Close(); err != nil {
		return err
	}
	for _, run := range r.In {
		fmt.Fprintln(c.Stdout(), run)
	}
	return c.Print(false, nil, "%d runs with %d events were read; %d events would be changed; nothing was%s", r.Runs, r.Events,
		r.Changed, textOfSealed("; ", scrub.Sealed{Events: r.Sealed}))
}

// trial applies rules to archived runs and counts.
type trial struct {
	ctx     context.Context
	book    rulesOf
	history archive.StoredRuns
	each    bool
	report  Report
}

// run reads a run as it is stored, from rows or objects.
func (t *trial) run(key schema.RunKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	rules := t.book(key.Tenant)
	look := redact.NewStored(rules, nil)
	for p, err := range t.history.Packs(t.ctx, key, 0, schema.MaxSeq) {
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		for line := range schema.Lines(p.Body) {
			if _, err := look.Add(line); err != nil {
				return fmt.Errorf("read %s: %w", key, err)
			}
			t.report.Events++
		}
	}
	look.Rest()
	t.report.Changed += look.Changed
	t.report.Sealed += look.Sealed
	counts := map[string]int{}
	for _, h := range look.Hits {
		counts[h.Rule] += h.Count
	}
	t.report.Runs++
	for _, rule := range rules.Names() {
		if n := counts[rule]; n > 0 {
			t.add(key.Tenant, rule, n)
		}
	}
	if t.each && len(counts) > 0 {
		t.report.In = append(t.report.In, key.String())
	}
	return nil
}

func (t *trial) add(tenant, rule string, n int) {
	i := slices.IndexFunc(t.report.Found, func(f Found) bool { return f.Tenant == tenant && f.Rule == rule })
	if i < 0 {
		i = len(t.report.Found)
		t.report.Found = append(t.report.Found, Found{Tenant: tenant, Rule: rule})
	}
	t.report.Found[i].Runs++
	t.report.Found[i].Count += n
}
