package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func callStart(id string) schema.Event {
	return persistertest.Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":%q,"tool":"t","input":{}}`, id))
}

// marked returns the seqs of what is marked as a repeat.
func (s *Store) marked(t *testing.T) []string {
	return s.firstColumn(t)(`select cast(seq as text) from agent_run_repeats where run_id = $1 order by seq`, key.Run)
}

// TestRepeatsOfAnEarlierProgram: what a program has stored that keeps no ids is known to one that does, also to one that
// has seen the run before it.
func TestRepeatsOfAnEarlierProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, other := opened(t, path), opened(t, path)
	defer s.Close()
	defer other.Close()
	w := persistertest.NewWriter(key, day)
	persistertest.Put(t, s, w.Pack("", callStart("a")))
	p := w.Pack("", callStart("b"))
	row := chunks(t, p)[0].Rows[0]
	for text, args := range map[string][]any{
		`insert or ignore into agent_run_events (koder_user_id, run_id, run_day, seq, id, child_id, type, ts, line) values (?,?,?,?,?,null,?,?,?)`: {
			key.Tenant, key.Run, day, int64(row.Seq), row.ID, row.Type, stamp(row.TS), string(row.Line)},
		`update agent_runs set last_seq = ?, last_id = ? where koder_user_id = ? and id = ?`: {
			int64(row.Seq), row.ID, key.Tenant, key.Run},
	} {
		if _, err := other.write.Exec(text, args...); err != nil {
			t.Fatal(err)
		}
	}
	persistertest.Put(t, s, w.Pack("", callStart("c")))
	persistertest.Put(t, s, w.Pack("", callStart("b"), callStart("a")))
	if got, want := s.marked(t), []string{"4", "5"}; !slices.Equal(got, want) {
		t.Errorf("%q are marked, want %q", got, want)
	}
}

// TestRepeatsOfOlderIDs: what was stored before files had ids is known after the migration, and only that.
func TestRepeatsOfOlderIDs(t *testing.T) {
	kept, path := filepath.Join(t.TempDir(), "kept.db"), filepath.Join(t.TempDir(), "s.db")
	w := persistertest.NewWriter(key, day)
	s := opened(t, kept)
	persistertest.Put(t, s, w.Pack("", callStart("a"), callStart("b")), w.Pack("run_child", callStart("c")))
	want := s.firstColumn(t)(`select seq || ' ' || frame from agent_run_ids where run_id = $1 order by seq`, key.Run)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyOlder(t, path, kept, 31)
	s = opened(t, path)
	defer s.Close()
	got := s.firstColumn(t)(`select seq || ' ' || frame from agent_run_ids where run_id = $1 order by seq`, key.Run)
	if !slices.Equal(got, want) || len(got) != 3 {
		t.Errorf("the migration keeps %q, an append %q", got, want)
	}
	persistertest.Put(t, s, w.Pack("", callStart("b"), callStart("c")))
	if got, want := s.marked(t), []string{"4"}; !slices.Equal(got, want) {
		t.Errorf("%q are marked, want %q", got, want)
	}
}

// TestIDsGoWithTheirRows: what is kept of frames goes with the last rows of a run that is removed, and a conflict keeps
// nothing.
func TestIDsGoWithTheirRows(t *testing.T) {
	s := temp(t)
	w, other := persistertest.NewWriter(key, day), persistertest.NewWriter(key, day)
	persistertest.Put(t, s, w.Pack("", callStart("a"), callStart("b")))
	res, err := s.Append(t.Context(), chunks(t, other.Pack("", callStart("c"), callStart("d"))))
	if err != nil || len(res.Conflicts) != 2 {
		t.Fatal(res, err)
	}
	count := func(want string) {
		t.Helper()
		got := s.firstColumn(t)(`select cast(count(*) as text) from agent_run_ids where run_id = $1`, key.Run)
		if got[0] != want {
			t.Errorf("%s ids, want %s", got[0], want)
		}
	}
	count("2")
	if _, err := s.Forget(t.Context(), key, w.Head, time.Now()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2", "0"} {
		scraps, err := s.Scraps(t.Context(), 0, 10)
		if err != nil || len(scraps) != 1 {
			t.Fatal(scraps, err)
		}
		if n, all, err := s.RemoveRows(t.Context(), []persister.Scrap{scraps[0]}, 1); err != nil || n != 1 || all != (i == 1) {
			t.Fatal(n, all, err)
		}
		count(want)
	}
}
