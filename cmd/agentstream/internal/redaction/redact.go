package redaction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/schema"
	"agentstream/schema/redact"
)

// RedactCmd checks rules, and tries them on archived runs.
type RedactCmd struct {
	archive.StoreFlags
	archive.BlobFlags
	Tenant string   `arg:"" optional:"" help:"Tenant whose archived runs are looked at; without one, all."`
	Runs   []string `arg:"" optional:"" name:"run" help:"Runs of the tenant; none: all."`
	Check  string   `help:"Read this file of rules as a server does, print what it holds, and stop." type:"path" placeholder:"FILE"`
	Redact string   `help:"File with the rules." type:"path" env:"AGENTSTREAM_REDACT" placeholder:"FILE"`
	DryRun bool     `name:"dry-run" help:"Count what the rules find in archived runs. Nothing is changed."`
	Each   bool     `name:"runs" help:"Name each run in which something is found."`
	JSON   bool     `name:"json" help:"Print one JSON object."`
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
}

// Run checks, or tries.
func (c *RedactCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.Check != "" {
		return c.check()
	}
	if c.Redact == "" || !c.DryRun {
		return errors.New("redact: --check FILE, or --redact FILE with --dry-run")
	}
	book, err := redact.Load(c.Redact)
	if err != nil {
		return fmt.Errorf("--redact: %w", err)
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
		if err := t.all(s, c.Tenant, c.Runs); err != nil {
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
	return c.Print(false, nil, "%d runs with %d events were read; %d events would be changed; nothing was", r.Runs, r.Events,
		r.Changed)
}

// trial applies rules to archived runs and counts.
type trial struct {
	ctx     context.Context
	book    *redact.Book
	history archive.StoredRuns
	each    bool
	report  Report
}

// pageOfRuns is how many ids are read at once.
const pageOfRuns = 500

// all passes over the runs of a tenant, of every tenant where it has no name, or over those that are named.
func (t *trial) all(s *archive.CommandStore, tenant string, ids []string) error {
	if len(ids) > 0 {
		for _, id := range ids {
			if err := t.run(schema.RunKey{Tenant: tenant, Run: id}); err != nil {
				return err
			}
		}
		return nil
	}
	if tenant != "" {
		return t.tenant(s, tenant)
	}
	for name := ""; ; {
		next, err := s.Lists.NextTenant(t.ctx, name)
		if err != nil || next == "" {
			return err
		}
		if err := t.tenant(s, next); err != nil {
			return err
		}
		name = next
	}
}

func (t *trial) tenant(s *archive.CommandStore, tenant string) error {
	if t.book.Of(tenant) == nil {
		return nil
	}
	for after := ""; ; {
		ids, err := s.Forget.RunIDs(t.ctx, tenant, after, pageOfRuns)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := t.run(schema.RunKey{Tenant: tenant, Run: id}); err != nil {
				return err
			}
		}
		if len(ids) < pageOfRuns {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// run reads a run as it is stored, from rows or objects.
func (t *trial) run(key schema.RunKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	rules := t.book.Of(key.Tenant)
	var trail redact.Trail
	counts := map[string]int{}
	for p, err := range t.history.Packs(t.ctx, key, 0, schema.MaxSeq) {
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		var events []schema.Event
		for r, err := range p.Records(0) {
			if err != nil {
				return err
			}
			e, err := r.Event()
			if err != nil {
				return fmt.Errorf("read %s: %w", key, err)
			}
			events = append(events, e)
		}
		done := rules.Batch(trail, events)
		trail = done.Trail
		t.report.Events += len(events)
		t.report.Changed += done.Changed
		for _, h := range done.Hits {
			counts[h.Rule] += h.Count
		}
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
