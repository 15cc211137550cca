package sqlite

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

const day = "20260228"

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

// empty returns what Migrate makes of no file. It is made once in a test process.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "agentstream-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "empty.db")
	if _, err := Migrate(context.Background(), path, false); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// migrated returns the path of a fresh, migrated file.
func migrated(t testing.TB) string {
	t.Helper()
	text, err := empty()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func temp(t testing.TB) *Store {
	t.Helper()
	path := migrated(t)
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func chunks(t testing.TB, packs ...schema.Pack) []persister.Chunk {
	t.Helper()
	c, err := persister.Chunks(packs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func replayed(t testing.TB, s *Store) (body []byte) {
	t.Helper()
	for p, err := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, p.Body...)
	}
	return body
}

// TestFullDisk: no space is an outage, not poison; the transaction leaves nothing behind, and when
// there is space the same append goes through.
func TestFullDisk(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(key, day)
	a, b := w.Texts("", 10), w.Texts("", 1000)
	if _, err := s.Append(t.Context(), chunks(t, a)); err != nil {
		t.Fatal(err)
	}
	var pages int
	if err := s.write.QueryRow(`pragma page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		t.Helper()
		var got int
		if err := s.write.QueryRow(`pragma max_page_count = ` + schema.Seq(n).String()).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages + 5)
	_, err := s.Append(t.Context(), chunks(t, b))
	if err == nil || errors.Is(err, persister.ErrPoison) {
		t.Fatalf("append to a full file: %v", err)
	}
	if h, err := s.Head(t.Context(), key, ""); err != nil || h.Last != 10 || !bytes.Equal(replayed(t, s), a.Body) {
		t.Fatalf("a failed append has left its traces: %+v, %v", h, err)
	}
	limit(1 << 20)
	if res, err := s.Append(t.Context(), chunks(t, a, b)); err != nil || res.Inserted != 1000 || res.Repeated != 10 {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestPoison: a line that the table refuses is distinguished from an outage.
func TestPoison(t *testing.T) {
	s := temp(t)
	if _, err := s.write.Exec(`create trigger refuse before insert on agent_run_events when new.line like '%POISON%'
		begin select raise(abort, 'refused'); end`); err != nil {
		t.Fatal(err)
	}
	w := persistertest.NewWriter(key, day)
	good := w.Texts("", 3)
	bad := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"POISON"}`))
	if _, err := s.Append(t.Context(), chunks(t, good, bad)); !errors.Is(err, persister.ErrPoison) {
		t.Fatalf("a batch with poison: %v", err)
	}
	if got := replayed(t, s); len(got) > 0 {
		t.Fatalf("a refused batch has left %s", got)
	}
	if _, err := s.Append(t.Context(), chunks(t, good)); err != nil {
		t.Fatal(err)
	}
}

// setFloor does to a run what archives and retention do.
func setFloor(t *testing.T, s *Store, key schema.RunKey, floor schema.Seq) {
	t.Helper()
	for _, statement := range []string{
		`update agent_runs set floor_seq = ?3, deleted_at = iif(?3 = 9007199254740991, 'now', null) where koder_user_id = ?1 and id = ?2`,
		`delete from agent_run_events where koder_user_id = ?1 and run_id = ?2 and seq <= ?3`,
	} {
		if _, err := s.write.Exec(statement, key.Tenant, key.Run, int64(floor)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGoesOn: a run that goes on is neither archived nor expired any more; one whose events come again is.
func TestGoesOn(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(key, day)
	a, b := w.Texts("", 3), w.Texts("", 2)
	put := func(packs ...schema.Pack) {
		t.Helper()
		if _, err := s.Append(t.Context(), chunks(t, packs...)); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(floor schema.Seq, archived, expired any) {
		t.Helper()
		setFloor(t, s, key, floor)
		if _, err := s.write.Exec(`update agent_runs set archived_seq = ?1, archived_at = ?2, expired_at = ?3, replay_uri = 'x'`, int64(floor), archived, expired); err != nil {
			t.Fatal(err)
		}
	}
	marks := func(want string) {
		t.Helper()
		var got string
		err := s.read.QueryRow(`select coalesce(archived_at, '-') || ' ' || coalesce(expired_at, '-') || ' ' || archived_seq || ' ' || replay_uri from agent_runs`).Scan(&got)
		if err != nil || got != want {
			t.Fatalf("%s, want %s (%v)", got, want, err)
		}
	}
	put(a)
	mark(2, "then", "then")
	put(a)
	marks("then then 2 x")
	put(b) // the short way, were it not for the marks
	marks("- - 2 x")
	for _, m := range [][2]any{{"then", nil}, {nil, "then"}} {
		mark(5, m[0], m[1])
		put(w.Texts("", 1))
		marks("- - 5 x")
	}
	mark(5, "then", "then")
	put(b, w.Pack("", persistertest.Lifecycle(schema.StatePaused))) // the long way
	marks("- - 5 x")
	var lanes int
	setFloor(t, s, key, schema.MaxSeq)
	put(w.Texts("late", 1))
	if err := s.read.QueryRow(`select count(*) from agent_run_lanes`).Scan(&lanes); err != nil || lanes != 0 {
		t.Fatalf("%d lanes of a run that is to be forgotten (%v)", lanes, err)
	}
}

// TestPayload is what queries see.
func TestPayload(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(key, day)
	if _, err := s.Append(t.Context(), chunks(t,
		w.Pack("", persistertest.Event("custom.x", `{"b":1,"a":"ü"}`)))); err != nil {
		t.Fatal(err)
	}
	var payload, a string
	if err := s.read.QueryRow(`select payload, payload->>'a' from agent_run_events`).Scan(&payload, &a); err != nil ||
		payload != `{"b":1,"a":"ü"}` || a != "ü" {
		t.Fatalf("payload %s, a %s, %v", payload, a, err)
	}
}

func TestDurable(t *testing.T) {
	s := temp(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		var got string
		if err := s.write.QueryRow(`pragma ` + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v", pragma, got, err)
		}
	}
	if _, err := s.read.Exec(`delete from agent_runs`); err == nil {
		t.Error("a reader can write")
	}
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	planned, err := Migrate(t.Context(), path, true)
	if err != nil || len(planned) == 0 {
		t.Fatalf("dry run: %q, %v", planned, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a dry run has made the file (%v)", err)
	}
	if _, err := Open(t.Context(), Config{Path: path}); err == nil || !strings.Contains(err.Error(), "migrate") {
		t.Fatalf("open without tables: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := Migrate(context.Background(), path, false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if again, err := Migrate(t.Context(), path, true); err != nil || len(again) != 0 {
		t.Fatalf("afterwards still to do: %q, %v", again, err)
	}
	var def string
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.read.QueryRow(`select sql from sqlite_schema where name = 'agent_run_events_frames'`).Scan(&def); err != nil {
		t.Fatal(err)
	}
	for _, typ := range frameTypes {
		if !strings.Contains(def, "'"+typ+"'") {
			t.Errorf("%s is not in the index: %s", typ, def)
		}
		def = strings.ReplaceAll(def, "'"+typ+"'", "")
	}
	if strings.Contains(def, "'") {
		t.Errorf("other types are in the index: %s", def)
	}
}

// TestRunsAreReadByIndex: what is read of some types only does not cost more for a longer run.
func TestRunsAreReadByIndex(t *testing.T) {
	s := temp(t)
	for text, index := range map[string]string{
		selectFrames: "agent_run_events_frames",
		`select * from agent_v_usage where koder_user_id = ? and run_id = ?`:                       "u USING PRIMARY KEY (koder_user_id=? AND run_id=?)",
		`select koder_user_id, seq from agent_v_messages where koder_user_id = ? and run_id = ?`:   "agent_run_events_frames",
		`select koder_user_id, seq from agent_v_tool_calls where koder_user_id = ? and run_id = ?`: "agent_run_events_tools",
	} {
		args := []any{key.Tenant, key.Run, 1 << 30}
		plan := explain(t, s, text, args[:strings.Count(text, "?")]...)
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "agent_run_events ") && !strings.Contains(line, index) {
				t.Errorf("%s: %s", text, line)
			}
		}
		if !strings.Contains(plan, index) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s:\n%s", text, plan)
		}
	}
}

// TestEarlierStatement: a program of before writes to a file that this one has made.
func TestEarlierStatement(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(key, day)
	p := w.Texts("", 2)
	c := chunks(t, p)
	if _, err := s.Append(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	const earlier = `insert or ignore into agent_run_events (koder_user_id, run_id, seq, run_day, id, child_id, type, ts, line)
		values (?,?,?,?,?,nullif(?,''),?,?,?),(?,?,?,?,?,nullif(?,''),?,?,?)`
	next := w.Texts("", 1)
	var args []any
	for _, r := range []persister.Row{c[0].Rows[1], chunks(t, next)[0].Rows[0]} { // one is stored
		args = append(args, key.Tenant, key.Run, int64(r.Seq), day, r.ID, "", r.Type, stamp(r.TS), string(r.Line))
	}
	done, err := s.write.Exec(earlier, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n != 1 || err != nil {
		t.Errorf("%d rows inserted, %v", n, err)
	}
	if want := append(slices.Clone(p.Body), next.Body...); !bytes.Equal(replayed(t, s), want) {
		t.Error("rows differ")
	}
}

// frameTypes are the types that the index is of: those that change a state, and those that framed what was open before.
var frameTypes = append(slices.Clone(persister.StateTypes), schema.TypeMessageStart, schema.TypeMessageEnd)

// TestTwoProcesses: two stores on one file, as two processes have them, wait for each other.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if _, err := Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	w := persistertest.NewWriter(key, day)
	var packs []schema.Pack
	for range 40 {
		packs = append(packs, w.Texts("", 10))
	}
	var wg sync.WaitGroup
	for range 2 {
		s, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		wg.Go(func() {
			for _, p := range packs {
				c, err := persister.Chunks(p)
				if err == nil {
					_, err = s.Append(t.Context(), c)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var want []byte
	for _, p := range packs {
		want = append(want, p.Body...)
	}
	if !bytes.Equal(replayed(t, s), want) {
		t.Fatal("rows differ")
	}
}
