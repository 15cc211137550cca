package sqlstore

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Migrations are known by the numbers of files and of code; what has no number is none.
func TestMigrations(t *testing.T) {
	files := fstest.MapFS{"migrations/00001_begin.sql": {}, "migrations/00003_more.sql": {}, "migrations/readme.md": {}}
	m := NewMigrations(files, map[int64]string{2: "collect"})
	if m.Newest() != 3 {
		t.Errorf("the newest is %d", m.Newest())
	}
	for version, want := range map[int64][]string{0: {"00001_begin.sql", "00002_collect", "00003_more.sql"},
		2: {"00003_more.sql"}, 3: nil, 9: nil} {
		if got := m.Behind(version); !slices.Equal(got, want) {
			t.Errorf("behind %d: %q, want %q", version, got, want)
		}
	}
}

// Times and days are read in each form that a driver returns.
func TestScanners(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	for _, c := range []struct {
		value any
		want  time.Time
		ok    bool
	}{
		{nil, time.Time{}, true}, {at.In(time.FixedZone("", 3600)), at, true},
		{"2026-03-01T12:00:00.000000005Z", at, true}, {"yesterday", at, false}, {7, at, false},
	} {
		got := at
		if err := (timeIn{&got}).Scan(c.value); (err == nil) != c.ok || c.ok &&
			(!got.Equal(c.want) || got.Location() != time.UTC) {
			t.Errorf("%v: %v, %v", c.value, got, err)
		}
	}
	for value, want := range map[any]string{at: "20260301", "20260302": "20260302", 7: ""} {
		var day string
		if err := (dayIn{&day}).Scan(value); (err == nil) != (want != "") || day != want {
			t.Errorf("%v: %q, %v", value, day, err)
		}
	}
}

// script is a database that notes its statements and answers them with rows.
type script struct {
	rows [][]any
	err  error
	said []string
}

func (s *script) Read(_ context.Context, tenant string, row func(Scan) error, text string, args ...any) error {
	s.said = append(s.said, tenant+": "+text)
	for _, values := range s.rows {
		err := row(func(into ...any) error {
			for i, v := range values {
				reflect.ValueOf(into[i]).Elem().Set(reflect.ValueOf(v))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.err
}

func (s *script) Within(context.Context, string, func(Tx) error) error { return s.err }
func (s *script) Write(context.Context, *Work) (persister.Result, error) {
	return persister.Result{}, s.err
}

// The statement of a page of runs has the conditions that are asked for and no other, each argument in its place, and
// one page for each state.
func TestRunsQuery(t *testing.T) {
	s := New(nil, nil, Dialect{Usage: "usage", Time: func(at time.Time) any { return at.Unix() }})
	at := time.Unix(100, 0)
	for _, c := range []struct {
		q         schema.RunsQuery
		has, lack []string
		args      []any
	}{
		{schema.RunsQuery{Limit: 5}, []string{"limit $2", "order by first_ts desc"},
			[]string{"$3", "union", "session_agent", "asked_ts is not null"}, []any{"acme", 5}},
		{schema.RunsQuery{Limit: 5, Oldest: true, Since: at}, []string{"first_ts >= $3", "order by first_ts, id"},
			[]string{"desc", "$4"}, []any{"acme", 5, int64(100)}},
		{schema.RunsQuery{Limit: 5, Waits: true, Sessions: true, Agent: "a"},
			[]string{"asked_ts is not null or", "session_archived_at is null", "session_agent = $3"}, []string{"$4"},
			[]any{"acme", 5, "a"}},
		{schema.RunsQuery{Limit: 5, Sessions: true, Archived: true}, []string{"session_deleted_at is null"},
			[]string{"session_archived_at is null"}, []any{"acme", 5}},
		{schema.RunsQuery{Limit: 5, Until: at, States: []schema.RunState{"done", "error"}},
			[]string{"first_ts < $3", "state = $4", "state = $5", "page_0", "page_1", "union all"}, []string{"$6"},
			[]any{"acme", 5, int64(100), "done", "error"}},
	} {
		text, args := s.RunsQuery("acme", c.q)
		if !reflect.DeepEqual(args, c.args) {
			t.Errorf("%+v: arguments %v, want %v", c.q, args, c.args)
		}
		for _, part := range c.has {
			if !strings.Contains(text, part) {
				t.Errorf("%+v: %q is not in %s", c.q, part, text)
			}
		}
		for _, part := range c.lack {
			if strings.Contains(text, part) {
				t.Errorf("%+v: %q is in %s", c.q, part, text)
			}
		}
	}
}

// An error has the database's name and what was done, and stays what it is.
func TestErrorsSayWhatWasDone(t *testing.T) {
	away := errors.New("away")
	db := &script{err: away}
	s := New(db, nil, Dialect{Name: "test"})
	_, err := s.Parent(t.Context(), "acme", "kid")
	if !errors.Is(err, away) || !strings.HasPrefix(err.Error(), "test: ") || !strings.Contains(err.Error(), "kid") {
		t.Errorf("parent: %v", err)
	}
	if _, err = s.Runs(t.Context(), "acme", schema.RunsQuery{}); !errors.Is(err, away) ||
		!strings.Contains(err.Error(), "acme") {
		t.Errorf("runs: %v", err)
	}
	for _, said := range db.said {
		if !strings.HasPrefix(said, "acme: ") {
			t.Errorf("asked as another tenant: %s", said)
		}
	}
}

// Feeds are trimmed only where a protocol names some.
func TestNoFeedsAreTrimmedWithoutNames(t *testing.T) {
	db := &script{err: errors.New("asked")}
	s := New(db, nil, Dialect{})
	if n, err := s.TrimFeeds(t.Context(), schema.Feeds{}, time.Now(), time.Now()); n != 0 || err != nil ||
		len(db.said) > 0 {
		t.Errorf("%d trimmed, %v, %q", n, err, db.said)
	}
	if _, err := s.TrimFeeds(t.Context(), schema.Feeds{Prefix: "feed-"}, time.Now(), time.Now()); err == nil {
		t.Error("nothing was asked")
	}
}

func (*script) Rewriter(context.Context, Tx, schema.RunKey, string) (RunRewriter, error) {
	return nil, errors.ErrUnsupported
}
