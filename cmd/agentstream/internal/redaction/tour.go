package redaction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge/audit"
	"agentstream/schema"
	"agentstream/schema/redact"
)

// rulesOf returns the rules of a tenant, nil where nothing is to be hidden.
type rulesOf func(tenant string) *redact.Rules

// rules reads the rules, or the one text.
func (c *RedactCmd) rules() (rulesOf, error) {
	switch {
	case c.TextFile != "":
		text, err := c.text()
		if err != nil {
			return nil, fmt.Errorf("--text-file: %w", err)
		}
		rules, err := redact.Literal(text)
		if err != nil {
			return nil, fmt.Errorf("--text-file: %w", err)
		}
		return func(string) *redact.Rules { return rules }, nil
	case c.Redact == "":
		return nil, errors.New("redact: --redact FILE or --text-file FILE is required")
	}
	book, err := redact.Load(c.Redact)
	if err != nil {
		return nil, fmt.Errorf("--redact: %w", err)
	}
	for _, tenant := range book.Tenants() {
		if err := book.Of(tenant).CheckStored(); err != nil && c.Apply {
			return nil, fmt.Errorf("--redact: tenant %s: %w", tenant, err)
		}
	}
	return book.Of, nil
}

// text reads the text that is to be hidden.
func (c *RedactCmd) text() (string, error) {
	in := c.Stdin()
	if c.TextFile != "-" {
		f, err := os.Open(c.TextFile)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, redact.MaxLiteral+3))
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), err
}

// days checks the bounds of days, and lets them be as the archive has them.
func (c *RedactCmd) days() error {
	for _, flag := range []struct {
		name string
		day  *string
	}{{"--since", &c.Since}, {"--until", &c.Until}} {
		if *flag.day == "" {
			continue
		}
		day, err := time.Parse(time.DateOnly, *flag.day)
		if err != nil {
			return fmt.Errorf("%s must be a day (2026-11-29), not %q", flag.name, *flag.day)
		}
		*flag.day = day.Format("20060102")
	}
	return nil
}

// tour passes over runs.
type tour struct {
	ctx          context.Context
	store        *archive.CommandStore
	rules        rulesOf
	since, until string // days, YYYYMMDD; "" for none
	run          func(schema.RunKey) error
	also         func(tenant string) ([]string, error) // runs that the archive may lack; nil: none
}

// pageOfRuns is how many ids are read at once.
const pageOfRuns = 500

// all passes over the runs of a tenant, of every tenant where it has no name, or over those that are named.
func (w *tour) all(tenant string, ids []string) error {
	if len(ids) > 0 {
		for _, id := range ids {
			if err := w.one(schema.RunKey{Tenant: tenant, Run: id}); err != nil {
				return err
			}
		}
		return nil
	}
	if tenant != "" {
		return w.tenant(tenant)
	}
	for name := ""; ; {
		next, err := w.store.Lists.NextTenant(w.ctx, name)
		if err != nil || next == "" {
			return err
		}
		if err := w.tenant(next); err != nil {
			return err
		}
		name = next
	}
}

func (w *tour) tenant(tenant string) error {
	if w.rules(tenant) == nil || audit.IsReserved(tenant) { // a feed holds no payload, and is evidence
		return nil
	}
	for after := ""; ; {
		ids, err := w.store.Forget.RunIDs(w.ctx, tenant, after, pageOfRuns)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := w.one(schema.RunKey{Tenant: tenant, Run: id}); err != nil {
				return err
			}
		}
		if len(ids) < pageOfRuns {
			break
		}
		after = ids[len(ids)-1]
	}
	if w.also == nil {
		return nil
	}
	ids, err := w.also(tenant)
	for _, id := range ids {
		if err == nil {
			err = w.lacking(schema.RunKey{Tenant: tenant, Run: id})
		}
	}
	return err
}

// one passes over a run, unless it began on another day.
func (w *tour) one(key schema.RunKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if w.since != "" || w.until != "" {
		place, err := w.store.Rows.Place(w.ctx, key)
		if err != nil {
			return err
		}
		if place.Day < w.since || w.until != "" && place.Day > w.until {
			return nil
		}
	}
	return w.run(key)
}

// lacking passes over a run of the log that the archive does not have: what could not be stored.
func (w *tour) lacking(key schema.RunKey) error {
	place, err := w.store.Rows.Place(w.ctx, key)
	if err != nil || place.Day != "" {
		return err
	}
	return w.run(key)
}
