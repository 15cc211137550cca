package redaction

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/edge/audit"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/scrub"
	"agentstream/schema"
)

// FolderOpener opens the log of a dev server's folder, and stores what the folder's archive lacks of it. The error says
// when a server has the folder.
type FolderOpener func(ctx context.Context, folder string, log *slog.Logger) (nc *nats.Conn, done func(), err error)

// Applied is what was done, in all runs.
type Applied struct {
	Runs     int            `json:"runs"`    // that were looked at
	Events   int            `json:"events"`  // of them
	In       int            `json:"in"`      // runs with something
	Changed  int            `json:"changed"` // events
	Objects  int            `json:"objects"` // written again
	Messages int            `json:"messages"`
	Blobs    int            `json:"blobs"`
	Letters  int            `json:"dead_letters"`
	Held     []string       `json:"held"` // runs that stay as they are
	Failed   []string       `json:"failed"`
	Found    map[string]int `json:"found"` // by rule
	Sealed   scrub.Sealed   `json:"sealed"`
}

// application is --apply under way.
type application struct {
	*RedactCmd
	ctx      context.Context
	log      *slog.Logger
	nc       *nats.Conn
	scrubber *scrub.Scrubber
	tenants  map[string]*tally
	done     Applied
	shown    time.Time
}

// tally is what was found in the runs of one tenant, by rule, and what was not looked into.
type tally struct {
	found  map[string]int
	sealed scrub.Sealed
}

// apply hides what the rules find in all that is stored.
func (c *RedactCmd) apply(ctx context.Context, log *slog.Logger, rules rulesOf, open FolderOpener) error {
	if err := c.confirm(); err != nil {
		return err
	}
	nc, closeLog, err := c.openLog(ctx, log, open)
	if err != nil {
		return err
	}
	defer closeLog()
	return c.With(ctx, log, func(s *archive.CommandStore) error {
		purger, err := natsjs.NewPurger(ctx, nc, "")
		if err != nil {
			return err
		}
		a := &application{RedactCmd: c, ctx: ctx, log: log, nc: nc, shown: time.Now(), tenants: map[string]*tally{},
			done: Applied{Held: []string{}, Failed: []string{}, Found: map[string]int{}}}
		if a.scrubber, err = c.scrubber(s, nc, purger, rules, log); err != nil {
			return err
		}
		w := tour{ctx: ctx, store: s, rules: rules, since: c.Since, until: c.Until, run: a.run}
		if c.Since == "" && c.Until == "" {
			w.also = func(tenant string) ([]string, error) { return purger.RunsOf(ctx, tenant) }
		}
		err = a.all(&w)
		return errors.Join(err, a.noteAll(), a.vacuum(s), a.print())
	})
}

// all passes over the runs, after the audit feed has a line about it.
func (a *application) all(w *tour) error {
	if a.Tenant != "" { // of all tenants, those in which something is found have a line afterwards
		if err := a.note(a.Tenant, "begins"); err != nil {
			return err
		}
	}
	if err := w.all(a.Tenant, a.Runs); err != nil || a.Tenant != "" {
		return err
	}
	d, err := a.scrubber.CleanUnnamedLetters(a.ctx)
	a.done.Letters += d.Letters
	a.done.Sealed.Add(d.Sealed)
	return err
}

// noteAll writes what was found into the audit feeds.
func (a *application) noteAll() (err error) {
	for _, tenant := range slices.Sorted(maps.Keys(a.tenants)) {
		t := a.tenants[tenant]
		err = errors.Join(err, a.note(tenant, countsOf(t.found)+textOfSealed("; ", t.sealed)))
	}
	return err
}

// openLog connects to the log. That of a dev server's folder is in the folder, unless its server runs and --nats says
// where.
func (c *RedactCmd) openLog(ctx context.Context, log *slog.Logger, open FolderOpener) (*nats.Conn, func(), error) {
	if c.Data == "" {
		nc, err := c.Dial("redact", log)
		if err != nil {
			return nil, nil, err
		}
		return nc, nc.Close, nil
	}
	nc, done, err := open(ctx, c.Data, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--data: %w", err)
	}
	return nc, done, nil
}

func (c *RedactCmd) scrubber(s *archive.CommandStore, nc *nats.Conn, purger *natsjs.Purger, rules rulesOf,
	log *slog.Logger) (*scrub.Scrubber, error) {
	objects, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return nil, err
	}
	history, err := s.History(objects)
	if err != nil {
		return nil, err
	}
	cfg := scrub.Config{Rules: rules, Store: s.Rewriting(), Letters: s.Rewriting(), History: history.Archive, Log: purger,
		Blobs: purger, Offsets: s.Offsets, HeldToo: c.HoldsToo, Logger: log,
		Changed: func(ctx context.Context, key schema.RunKey) error {
			if err := nc.Publish(natskit.RedactedSubject, []byte(key.String())); err != nil {
				return err
			}
			return nc.FlushWithContext(ctx)
		}}
	if objects != nil { // a nil pointer in an interface would not be nil
		if cfg.Objects, err = s.Reviser(objects, log); err != nil {
			return nil, err
		}
	}
	return scrub.New(cfg)
}

// runTime bounds the work on one run.
const runTime = time.Hour

// run hides what is found in one run. A run that fails does not keep the others from being done.
func (a *application) run(key schema.RunKey) error {
	ctx, cancel := context.WithTimeout(a.ctx, runTime)
	defer cancel()
	d, err := a.scrubber.Run(ctx, key)
	a.add(key, &d)
	switch {
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case errors.Is(err, persister.ErrHeld):
		a.done.Held = append(a.done.Held, key.String())
	case err != nil:
		a.done.Failed = append(a.done.Failed, key.String())
		a.Notice("FAILED\t%s\t%v", key, err)
	case d.Any() && a.Each:
		a.Notice("%s\t%d events", key, d.Changed)
	}
	if time.Since(a.shown) >= showEvery {
		a.shown = time.Now()
		a.Notice("%d runs so far with %d events, %d events changed in %d runs", a.done.Runs, a.done.Events, a.done.Changed,
			a.done.In)
	}
	return nil
}

// showEvery is how often is printed how far it is.
const showEvery = 5 * time.Second

func (a *application) add(key schema.RunKey, d *scrub.Done) {
	t := &a.done
	t.Runs++
	t.Events, t.Changed, t.Objects = t.Events+d.Events, t.Changed+d.Changed, t.Objects+d.Objects
	t.Messages, t.Blobs, t.Letters = t.Messages+d.Messages, t.Blobs+d.Blobs, t.Letters+d.Letters
	t.Sealed.Add(d.Sealed)
	if d.Any() {
		t.In++
	}
	if !d.Any() && d.Sealed == (scrub.Sealed{}) {
		return
	}
	of := a.tenants[key.Tenant]
	if of == nil {
		of = &tally{found: map[string]int{}}
		a.tenants[key.Tenant] = of
	}
	of.sealed.Add(d.Sealed)
	for _, h := range d.Hits {
		of.found[h.Rule] += h.Count
		t.Found[h.Rule] += h.Count
	}
}

// textOfSealed writes what could not be looked into; "" where that is nothing.
func textOfSealed(before string, s scrub.Sealed) string {
	if s == (scrub.Sealed{}) {
		return ""
	}
	return fmt.Sprintf("%snot looked into, for they are encrypted: %d events, %d blobs, %d dead letters", before, s.Events,
		s.Blobs, s.Letters)
}

// countsOf writes what was found.
func countsOf(found map[string]int) string {
	if len(found) == 0 {
		return "found nothing"
	}
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(found)) {
		list = append(list, fmt.Sprintf("%s %d", rule, found[rule]))
	}
	return "found " + strings.Join(list, ", ")
}

// note writes a line into the audit feed of a tenant: before anything is done, and what was found afterwards.
func (a *application) note(tenant, detail string) error {
	line := audit.Line{Action: audit.Redacted, Run: "*", Detail: detail}
	if len(a.Runs) == 1 {
		line.Run = a.Runs[0]
	}
	return a.RecordOn(context.WithoutCancel(a.ctx), a.nc, tenant, "redact", line, a.log)
}

// vacuum takes what was stored before out of the files of the archive, or says how.
func (a *application) vacuum(s *archive.CommandStore) error {
	if a.Data != "" || a.Vacuum {
		return s.Vacuum(a.ctx)
	}
	a.Notice("what was there before stays in the files of PostgreSQL until they are written again: --vacuum, or %s",
		s.VacuumCommands())
	return nil
}

func (a *application) print() error {
	d := &a.done
	err := a.Print(a.JSON, d, "%d runs with %d events were read; in %d runs %d events were changed, %d objects written again, "+
		"%d messages of the log, %d blobs removed, %d dead letters changed", d.Runs, d.Events, d.In, d.Changed, d.Objects,
		d.Messages, d.Blobs, d.Letters)
	if err == nil && len(d.Found) > 0 && !a.JSON {
		fmt.Fprintln(a.Stdout(), countsOf(d.Found))
	}
	if text := textOfSealed("", d.Sealed); err == nil && text != "" && !a.JSON {
		fmt.Fprintln(a.Stdout(), text)
	}
	if err == nil && len(d.Held) > 0 {
		err = fmt.Errorf("%d runs are under a legal hold and stay as they are: %s; --holds-too changes them", len(d.Held),
			strings.Join(d.Held[:min(len(d.Held), 5)], " "))
	}
	if err == nil && len(d.Failed) > 0 {
		err = fmt.Errorf("%d runs failed; run it again", len(d.Failed))
	}
	return err
}

// confirm has the word typed.
func (c *RedactCmd) confirm() error {
	if c.Yes {
		return nil
	}
	if c.TextFile == "-" {
		return errors.New("--text-file - needs --yes")
	}
	fmt.Fprint(c.Stderr(), "What is hidden cannot be brought back. Type redact to go on: ")
	line, err := bufio.NewReader(io.LimitReader(c.Stdin(), 1024)).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(c.Stderr())
		return errors.New("nothing was typed, nothing is changed; --yes does not ask")
	}
	if strings.TrimSpace(line) != "redact" {
		return errors.New("something else was typed, nothing is changed")
	}
	return nil
}
