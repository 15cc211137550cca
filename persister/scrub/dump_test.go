package scrub_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

const runColumns = "koder_user_id, id, state, last_seq, last_id, first_ts, last_ts, usage, reason, turn, turn_stop, opening, " +
	"opening_seq, model, title, tags, words, session, session_agent, asks"

// Queries of what is made of events.
var (
	madeInSQLite = []string{"select " + runColumns + " from agent_runs", "select * from agent_run_events",
		"select * from agent_run_usage", "select * from agent_run_models", "select * from agent_run_repeats"}
	madeInPostgres = []string{"select " + runColumns + " from agent_runs", "select * from agent_run_events",
		"select * from agent_run_usage", "select * from agent_run_messages", "select * from agent_run_tool_calls",
		"select * from agent_run_words"}
)

// dumpSQLite returns all rows of all tables as text.
func dumpSQLite(t *testing.T, path string, queries ...string) string {
	t.Helper()
	if queries == nil {
		queries = []string{"select * from agent_runs", "select * from agent_run_events", "select * from agent_run_usage",
			"select * from agent_run_models", "select * from agent_run_lanes", "select * from agent_dead_letters"}
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b strings.Builder
	for _, query := range queries {
		rows := rowsOf(t, db, query)
		slices.Sort(rows)
		b.WriteString(strings.Join(rows, "\n") + "\n")
	}
	return b.String()
}

// rowsOf returns the rows of a query, each as text.
func rowsOf(t *testing.T, db *sql.DB, query string) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i, v := range values {
			fmt.Fprintf(&b, "%s=%s ", columns[i], v.(*sql.NullString).String)
		}
		out = append(out, b.String())
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// dumpPostgres returns all rows of all tables as text.
func dumpPostgres(t *testing.T, dsn string, queries ...string) string {
	t.Helper()
	if queries == nil {
		queries = append(slices.Clone(madeInPostgres), "select * from agent_run_lanes",
			"select encode(body, 'escape'), encode(headers, 'escape'), detail, last_error from agent_dead_letters")
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var b strings.Builder
	for _, query := range queries {
		b.WriteString(pgText(t, conn, "select coalesce(string_agg(x::text, chr(10) order by x::text), '') from ("+query+") x") + "\n")
	}
	return b.String()
}

func pgText(t *testing.T, conn *pgx.Conn, query string) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}
