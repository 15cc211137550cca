package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// older are the statements of edges of earlier releases, by the version of the tables that they were written for. When
// a migration is added, those of the release before it are written down here.
var older = []struct {
	version int64
	scoped  bool // it names its tenant to row security
}{{4, false}, {14, true}}

// TestOlderReaders: an edge of an earlier release that still runs is given by every later migration what it was given
// before, or an error; never an empty list, which would pass for an answer.
func TestOlderReaders(t *testing.T) {
	dsn, _ := owned(t)
	persistertest.FillRuns(t, open(t, dsn), 60)
	for _, o := range older {
		t.Run(fmt.Sprint(o.version), func(t *testing.T) {
			_, owner := oldForm(t, pool(t, dsn))
			was := readAsOlder(t, owner, o.version, o.scoped)
			refused := 0
			for v := o.version + 1; v <= tables.Version(); v++ {
				for i, now := range readAsOlder(t, owner, v, o.scoped, o.version) {
					switch {
					case strings.HasPrefix(now, "ERROR"):
						refused++
					case now != was[i]:
						t.Errorf("at version %d statement %d gives\n%.300s\nwant\n%.300s", v, i, now, was[i])
					}
				}
			}
			if o.scoped && refused > 0 {
				t.Errorf("%d statements are refused", refused)
			}
		})
	}
}

// readAsOlder brings the tables to a version and returns the results of an older reader's statements, of the version of
// or, without it, of that one.
func readAsOlder(t *testing.T, owner string, version int64, scoped bool, of ...int64) (answers []string) {
	t.Helper()
	if err := postgres.MigrateTo(t.Context(), owner, version); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), owner) // without a setting that another has left
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if scoped {
		if _, err := conn.Exec(t.Context(), `set agentstream.tenant = 'acme'`); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(filepath.Join("testdata", "readers", fmt.Sprintf("%05d.sql", append(of, version)[0])))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(strings.TrimSpace(string(file)), ";\n") {
		results, err := conn.PgConn().Exec(t.Context(), strings.TrimSuffix(text, ";")).ReadAll()
		var rows strings.Builder
		for _, r := range results {
			for _, row := range r.Rows {
				fmt.Fprintf(&rows, "%q\n", row)
			}
		}
		if err != nil {
			rows.Reset()
			fmt.Fprintf(&rows, "ERROR %v", err)
		}
		if len(of) == 0 && (err != nil || rows.Len() == 0) {
			t.Fatalf("%s\nof its own version: %s", text, rows.String())
		}
		answers = append(answers, rows.String())
	}
	return answers
}

// taken finds what a program that does not know of it may miss, or stumble over; "" is nothing.
func taken(sql string) string {
	if found := takesAway.FindString(sql); found != "" {
		return found
	}
	for _, column := range addsColumn.FindAllString(strings.ToLower(sql), -1) {
		if strings.Contains(column, "not null") && !strings.Contains(column, "default") {
			return column
		}
	}
	return ""
}

var (
	takesAway  = regexp.MustCompile(`(?i)\bdrop\s+(table|column|view|function|procedure|constraint|default)\b|\brename\b|\bset\s+not\s+null\b|\balter\s+(column\s+)?\w+\s+(set\s+data\s+)?type\b`)
	addsColumn = regexp.MustCompile(`add\s+column\s[^,;]*`)
)

// TestMigrationsOnlyAdd: what edges and persisters of the release before need stays. A migration that takes something
// away declares it by another agent_readable_from.
func TestMigrationsOnlyAdd(t *testing.T) {
	files, err := filepath.Glob("tables/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if filepath.Base(name) < "00015" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sql := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(string(text), "")
		if found := taken(sql); found != "" && !strings.Contains(sql, "function agent_readable_from") {
			t.Errorf("%s: %q, and it does not say which programs work beside that", name, found)
		}
	}
	for text, want := range map[string]bool{
		"alter table a drop column b;": true, "alter table a rename b to c;": true,
		"alter table a alter column b type text;": true,
		"alter table a alter b set not null;":     true, "alter table a add column b text not null;": true,
		"alter table a\n  add column b text not null default '',\n  add column c bigint;": false,
		"drop policy if exists p on a;": false, "create index i on a (b);": false,
	} {
		if got := taken(text); (got != "") != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestReadable: tables of a newer version are for older programs when they declare it, and for no others.
func TestReadable(t *testing.T) {
	_, dsn := owned(t)
	s, p := open(t, dsn), pool(t, dsn)
	exec(t, p, `insert into agentstream_migrations (version_id, is_applied) values (9999, true)`)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("newer tables that have this program in mind: %v", err)
	}
	notFor(t, p)
	if err := s.Ping(t.Context()); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("for programs from 9999 on, this one knows up to %d", tables.Version())) {
		t.Errorf("newer tables that have not: %v", err)
	}
}
