package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// owned returns a fresh database twice: as its superuser, and as an owner without any other right, which is
// what the product is run as.
func owned(t testing.TB) (admin, owner string) {
	t.Helper()
	admin = testkit.Postgres(t)
	return admin, as(admin, makeOwner(t, admin))
}

// ownedMigrated is owned with tables, which the owner has made.
func ownedMigrated(t testing.TB) (admin, owner string) {
	t.Helper()
	admin = testkit.PostgresCopy(t, "owned", func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			_, err = conn.Exec(ctx, `create role owner_of_tables login; grant all on schema public to owner_of_tables`)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err == nil {
			_, err = tables.Migrate(ctx, as(dsn, "owner_of_tables"), false)
		}
		return err
	})
	p := pool(t, admin)
	exec(t, p, `alter database `+ask[string](t, p, `select current_database()`)+` owner to owner_of_tables`)
	return admin, as(admin, "owner_of_tables")
}

func makeOwner(t testing.TB, admin string) string {
	t.Helper()
	p := pool(t, admin)
	name := ask[string](t, p, `select current_database()`)
	exec(t, p, `create role owner_`+name+` login`)
	exec(t, p, `alter database `+name+` owner to owner_`+name)
	return "owner_" + name
}

// as is the DSN for another role.
func as(dsn, role string) string { return strings.Replace(dsn, "//postgres@", "//"+role+"@", 1) }

// copyTable copies columns of a table of one database into the same table of another.
func copyTable(t testing.TB, from, to *pgxpool.Pool, table, columns, where string) {
	t.Helper()
	var body bytes.Buffer
	src, err := from.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Release()
	if _, err := src.Conn().PgConn().CopyTo(t.Context(), &body,
		fmt.Sprintf(`copy (select %s from %s where %s) to stdout`, columns, table, where)); err != nil {
		t.Fatal(err)
	}
	dst, err := to.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Release()
	if _, err := dst.Conn().PgConn().CopyFrom(t.Context(), &body,
		fmt.Sprintf(`copy %s (%s) from stdin`, table, columns)); err != nil {
		t.Fatal(err)
	}
}

// oldForm makes a database with the tables of version 1 and what they would hold of the runs of another.
func oldForm(t testing.TB, from *pgxpool.Pool) (admin, owner string) {
	t.Helper()
	admin, owner = owned(t)
	if err := postgres.MigrateTo(t.Context(), owner, 1); err != nil {
		t.Fatal(err)
	}
	p := pool(t, owner)
	rows, err := from.Query(t.Context(), `select distinct to_char(run_day, 'YYYYMMDD'), run_day::text, (run_day + 1)::text from agent_run_events`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name, begin, end string
		if err := rows.Scan(&name, &begin, &end); err != nil {
			t.Fatal(err)
		}
		exec(t, p, fmt.Sprintf(`create table agent_run_events_%s partition of agent_run_events for values from ('%s') to ('%s')`, name, begin, end))
	}
	copyTable(t, from, p, "agent_runs", "koder_user_id, id, run_day, state, last_seq, last_id, anchors, first_ts, last_ts, created_at, updated_at", "true")
	exec(t, p, `update agent_runs set first_ts = '2020-01-01'`) // it was the earliest time of any event
	copyTable(t, from, p, "agent_run_lanes", "koder_user_id, run_id, lane, owner, epoch", "owner <> ''")
	copyTable(t, from, p, "agent_run_events",
		"koder_user_id, run_day, run_id, seq, id, child_id, type, ts, payload, line", "true")
	return admin, owner
}

// TestUpgrade: tables that were filled before runs were listed give, once migrated by an owner without
// other rights, what they would have given had they been kept from the start.
func TestUpgrade(t *testing.T) {
	dsn := testkit.Postgres(t)
	kept := pool(t, dsn)
	s := open(t, dsn)
	packs := persistertest.FillRuns(t, s, 1200)
	want := persistertest.ListRuns(t, s)
	admin, owner := oldForm(t, kept)
	names, err := tables.Migrate(t.Context(), owner, false)
	if err != nil || len(names) < 6 || strings.Contains(strings.Join(names, " "), "  ") {
		t.Fatalf("%q, %v", names, err)
	}
	s = open(t, owner)
	persistertest.SameRuns(t, s, want)
	counted := ask[string](t, pool(t, admin), frameTables)
	if was := ask[string](t, kept, frameTables); counted != was || len(was) < 10_000 {
		t.Errorf("what is kept for the views differs:\n%s\nwant\n%s", firstDifference(counted, was),
			firstDifference(was, counted))
	}
	// Everything comes again, as after the restart of a persister: nothing is counted twice.
	if _, err := s.Append(t.Context(), chunks(t, packs...)); err != nil {
		t.Fatal(err)
	}
	persistertest.SameRuns(t, s, want)
	if again := ask[string](t, pool(t, admin), frameTables); again != counted {
		t.Errorf("after a repeat there is\n%s", firstDifference(again, counted))
	}
}
