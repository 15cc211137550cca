package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"agentstream/schema"
)

// readerTables are the tables that an edge reads: the list of runs and what their models were, their heads, their rows.
var readerTables = []string{"agent_runs", "agent_run_lanes", "agent_run_events", "agent_run_usage", "agent_run_losses"}

// costTables are what costs are computed of: prices are the same for all tenants, and the view has the rights of who
// reads.
var costTables = []string{"agent_model_prices", "agent_v_costs"}

// GrantReader lets an existing role read what an edge reads, of the tenant that it names in each transaction. The role
// is trusted to name the right one. It can neither write nor read all tenants at once. GrantReader may be called again.
func GrantReader(ctx context.Context, dsn, role string) error {
	return grant(ctx, dsn, role, func(g *granter) error {
		g.each(costTables, func(table string) { g.exec(fmt.Sprintf(`grant select on %s to %s`, table, g.role)) })
		g.each(readerTables, func(table string) {
			g.exec(fmt.Sprintf(`grant select on %s to %s`, table, g.role))
			g.policy(table, "agent_reader_", `koder_user_id = (select current_setting('`+TenantSetting+`'))`)
		})
		g.each([]string{VersionTable, "agent_log_offsets", "agent_log_losses"}, func(table string) {
			g.exec(fmt.Sprintf(`grant select on %s to %s`, table, g.role))
		})
		return g.err
	})
}

// GrantAnalyst lets an existing role query the views of docs/sql.md for one tenant. The role cannot change the tenant
// by any setting, because it is part of the role's policies. Called again with another tenant, it binds the role to
// that one.
func GrantAnalyst(ctx context.Context, dsn, role, tenant string) error {
	if err := schema.ValidTenant(tenant); err != nil {
		return fmt.Errorf("postgres: grant analyst %s: %w", role, err)
	}
	return grant(ctx, dsn, role, func(g *granter) error {
		var mistaken bool
		g.ask(&mistaken, `select exists (select from pg_policy where polname = 'agent_reader_' || $1::text::regrole::oid)
			or exists (select from pg_roles r where r.rolname = $2 and (r.rolsuper or r.rolbypassrls))
			or pg_has_role($2::name, (select relowner from pg_class where oid = 'agent_runs'::regclass), 'member')`, g.role, role)
		if g.err == nil && mistaken {
			return errors.New("the role reads for all tenants: it owns the tables, is a superuser, has BYPASSRLS, or is an edge's")
		}
		literal := "'" + tenant + "'" // ValidTenant allows no quotes
		g.each(analystTables, func(table string) {
			g.exec(fmt.Sprintf(`grant select on %s to %s`, table, g.role))
			g.policy(table, "agent_analyst_", "koder_user_id = "+literal)
		})
		g.each(analystViews, func(view string) { g.exec(fmt.Sprintf(`grant select on %s to %s`, view, g.role)) })
		return g.err
	})
}

// analystTables are the tables that the views read. The views have the rights of the role that queries them.
var analystTables = []string{"agent_runs", "agent_run_lanes", "agent_run_events", "agent_run_messages",
	"agent_run_tool_calls", "agent_run_usage"}

// analystViews are the views for SQL, and the prices, which are the same for all tenants.
var analystViews = []string{"agent_v_runs", "agent_v_messages", "agent_v_tool_calls", "agent_v_tool_times",
	"agent_v_usage_daily", "agent_v_costs", "agent_v_audit", "agent_model_prices"}

// grant runs fn in a transaction of the tables' owner.
func grant(ctx context.Context, dsn, role string, fn func(*granter) error) error {
	db, err := Open(dsn)
	if err != nil {
		return fmt.Errorf("postgres: grant %s: %w", role, err)
	}
	err = func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		g := &granter{ctx: ctx, tx: tx}
		g.ask(&g.role, `select quote_ident($1)`, role)
		g.ask(&g.id, `select oid::text from pg_roles where rolname = $1`, role)
		if errors.Is(g.err, sql.ErrNoRows) {
			g.err = fmt.Errorf("there is no role %q: create role %s login …", role, g.role)
		}
		var schemaName string
		g.ask(&schemaName, `select quote_ident(relnamespace::regnamespace::text) from pg_class where oid = 'agent_runs'::regclass`)
		g.exec(fmt.Sprintf(`grant usage on schema %s to %s`, schemaName, g.role))
		if g.err == nil {
			g.err = fn(g)
		}
		if g.err != nil {
			return errors.Join(g.err, tx.Rollback())
		}
		return tx.Commit()
	}()
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("postgres: grant %s: %w", role, err)
	}
	return nil
}

// granter keeps the first error. After it every method does nothing.
type granter struct {
	ctx  context.Context
	tx   *sql.Tx
	role string // quoted
	id   string
	err  error
}

func (g *granter) each(names []string, fn func(string)) {
	for _, name := range names {
		fn(name)
	}
}

func (g *granter) exec(text string) {
	if g.err == nil {
		_, g.err = g.tx.ExecContext(g.ctx, text)
	}
}

func (g *granter) ask(into any, text string, args ...any) {
	if g.err == nil {
		g.err = g.tx.QueryRowContext(g.ctx, text, args...).Scan(into)
	}
}

// policy lets the role see rows of a table. The policy is named after the oid of the role: a role's name may be too
// long.
func (g *granter) policy(table, prefix, using string) {
	name := prefix + g.id
	g.exec(fmt.Sprintf(`drop policy if exists %s on %s`, name, table))
	g.exec(fmt.Sprintf(`create policy %s on %s for select to %s using (%s)`, name, table, g.role, using))
}
