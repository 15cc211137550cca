package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/internal/natskit"
	"agentstream/persister/postgres/tables"
)

// MigrateCmd brings streams, buckets and tables up to date, and grants roles what they need. Any number may run at
// once.
type MigrateCmd struct {
	cli.NATSFlags
	cli.LayoutFlags
	cli.PostgresFlags
	DryRun       bool     `help:"Say what would be done to the streams and the tables; change nothing."`
	JSON         bool     `name:"json" help:"Print one JSON object."`
	GrantReader  []string `help:"Also let this database role read what an edge reads; an edge that connects as it can neither write nor look beyond the tenant it asks for." placeholder:"ROLE"`
	GrantAnalyst []string `help:"Also let this database role query the views of docs/sql.md, for this tenant and no other." placeholder:"ROLE=TENANT"`
	NATSRights   bool     `name:"nats-permissions" help:"Print NATS users with the rights of each role, as a server's configuration has them, and do nothing else."`
	Search       string   `help:"words: make an index of the words of messages, which agent_search reads; off: remove it." enum:"words,off," default:""`
	cli.Streams  `kong:"-"`
}

// migrated is what was done, or would be.
type migrated struct {
	DryRun     bool             `json:"dry_run"`
	Partitions int              `json:"partitions"`
	Replicas   int              `json:"replicas"`
	Window     string           `json:"window"`
	Streams    []natskit.Change `json:"streams"`    // and buckets, that were made or changed
	Tables     bool             `json:"tables"`     // false: no --postgres, left alone
	Migrations []string         `json:"migrations"` // in their order
	Grants     []string         `json:"grants"`
	Search     string           `json:"search,omitempty"` // words or off: what was asked for
}

// Run declares the streams and the buckets and, with --postgres, migrates the tables.
func (c *MigrateCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.NATSRights {
		return natskit.WriteUsers(c.Stdout())
	}
	if c.Postgres == "" && (len(c.GrantReader)+len(c.GrantAnalyst) > 0 || c.Search != "") {
		return cli.ErrNoPostgres
	}
	done := migrated{DryRun: c.DryRun, Streams: []natskit.Change{}, Migrations: []string{}, Grants: []string{}}
	if err := c.migrateStreams(ctx, log, &done); err != nil {
		return err
	}
	if c.Postgres != "" {
		done.Tables = true
		names, err := c.tables(ctx, log)
		if err != nil {
			return err
		}
		done.Migrations = append(done.Migrations, names...)
		if err := c.grantRoles(ctx, &done); err != nil {
			return err
		}
		if done.Search = c.Search; c.Search != "" && !c.DryRun {
			if err := tables.SetSearch(ctx, c.Postgres, c.Search == "words"); err != nil {
				return err
			}
		}
	}
	if c.JSON {
		return c.Print(true, done, "")
	}
	done.print(c.Stdout())
	return nil
}

// declareWithin is how long servers that have just started may take to find each other and to make everything.
const declareWithin = time.Minute

// migrateStreams declares the streams of the log, or says what that would change.
func (c *MigrateCmd) migrateStreams(ctx context.Context, log *slog.Logger, done *migrated) error {
	nc, err := c.Dial("migrate", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, declareWithin)
	defer cancel()
	want, err := c.Layout()
	if err != nil {
		return err
	}
	layout, changes, err := natskit.Plan(ctx, js, want)
	if err == nil && !c.DryRun {
		err = natskit.Declare(ctx, js, want)
	}
	if err != nil {
		return err
	}
	done.Partitions, done.Replicas, done.Window = layout.Partitions, layout.Replicas, layout.MaxAge.String()
	done.Streams = append(done.Streams, changes...)
	return nil
}

// tables migrates them, when the database is there: it may be starting as well.
func (c *MigrateCmd) tables(ctx context.Context, log *slog.Logger) (names []string, err error) {
	for end, logged := time.Now().Add(declareWithin), false; ; logged = true {
		names, err = tables.Migrate(ctx, c.Postgres, c.DryRun)
		if !errors.Is(err, tables.ErrAway) || time.Now().After(end) {
			return names, err
		}
		if !logged {
			log.Warn("migrate: waiting for PostgreSQL", "err", err)
		}
		select {
		case <-time.After(node.AwaitRest):
		case <-ctx.Done():
			return names, errors.Join(err, ctx.Err())
		}
	}
}

// grantRoles grants the roles of readers and analysts their rights.
func (c *MigrateCmd) grantRoles(ctx context.Context, done *migrated) error {
	for _, role := range c.GrantReader {
		done.Grants = append(done.Grants, role+" reads what an edge reads")
		if c.DryRun {
			continue
		}
		if err := tables.GrantReader(ctx, c.Postgres, role); err != nil {
			return err
		}
	}
	for _, pair := range c.GrantAnalyst {
		i := strings.LastIndexByte(pair, '=') // no tenant has one in it
		if i < 1 {
			return errors.New("--grant-analyst must be ROLE=TENANT")
		}
		role, tenant := pair[:i], pair[i+1:]
		done.Grants = append(done.Grants, fmt.Sprintf("%s queries the views for tenant %s", role, tenant))
		if c.DryRun {
			continue
		}
		if err := tables.GrantAnalyst(ctx, c.Postgres, role, tenant); err != nil {
			return err
		}
	}
	return nil
}

func (m *migrated) print(w io.Writer) {
	would := ""
	if m.DryRun {
		would = "would be "
	}
	fmt.Fprintf(w, "streams: %s%d partitions, %d replicas, window %s\n", would, m.Partitions, m.Replicas, m.Window)
	for _, s := range m.Streams {
		what := "changed: " + strings.Join(s.Fields, ", ")
		if s.New {
			what = "made"
		}
		fmt.Fprintf(w, "  %s %s%s\n", s.Stream, would, what)
	}
	if !m.Tables {
		fmt.Fprintln(w, "tables: no --postgres, left alone")
		return
	}
	verb := "applied"
	if m.DryRun {
		verb = "would apply"
	}
	fmt.Fprintf(w, "tables: %s %d migrations\n", verb, len(m.Migrations))
	for _, n := range m.Migrations {
		fmt.Fprintln(w, "  "+n)
	}
	for _, g := range m.Grants {
		fmt.Fprintf(w, "roles: %s%s\n", map[bool]string{true: "from then on "}[m.DryRun], g)
	}
	if m.Search != "" {
		fmt.Fprintf(w, "search: %s%s\n", would, m.Search)
	}
}
