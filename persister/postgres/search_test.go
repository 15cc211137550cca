package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// searchWords is the recipe of docs/sql.md.
const searchWords = `select m.run_id, m.seq, m.text from agent_search('%s') s join agent_v_messages m using (koder_user_id, run_id, seq) order by m.run_id, m.seq`

// TestSearch: messages are found by their words, those that were stored before the index was made and those after it,
// by an analyst in his tenant alone, and no more when they are gone.
func TestSearch(t *testing.T) {
	admin, owner := ownedMigrated(t)
	s := open(t, owner)
	message := func(w *persistertest.Writer, child string, parts ...string) {
		packs := []schema.Pack{w.Pack(child, persistertest.Event(schema.TypeMessageStart,
			`{"message_id":"m","role":"assistant"}`))}
		for _, part := range parts {
			packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, part))))
		}
		packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeMessageEnd, `{"message_id":"m"}`),
			persistertest.Event(schema.TypeMessageEnd, `{"message_id":"m"}`)),
			w.Pack(child, persistertest.Event(schema.TypeCommandMessage,
				`{"content":[{"type":"text","text":"The person writes Grüße"}]}`)))
		persistertest.Put(t, s, packs...)
	}
	a := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_a"}, "20260101")
	g := persistertest.NewWriter(schema.RunKey{Tenant: "globex", Run: "run_g"}, "20260101")
	message(a, "", "The disk is ", "fu", "ll.")
	message(g, "", "Our disk is full, too.")
	for range 2 { // it can be made anew
		if err := tables.SetSearch(t.Context(), owner, true); err != nil {
			t.Fatal(err)
		}
	}
	message(a, "kid", "A full", " disk, and "+strings.Repeat("x", 3000)+" é")
	for i, payload := range persistertest.Hostile() {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_h%d", i)}, "20260101")
		persistertest.Put(t, s, w.Pack("", persistertest.Event(schema.TypeMessageStart, payload)),
			w.Pack("", persistertest.Event(schema.TypeTextDelta, payload)),
			w.Pack("", persistertest.Event(schema.TypeMessageEnd, payload)),
			w.Pack("", persistertest.Event(schema.TypeCommandMessage, payload)))
	}
	exec(t, pool(t, admin), `create role searcher login; create role nobody_here login; grant usage on schema public to nobody_here`)
	if err := tables.GrantAnalyst(t.Context(), owner, "searcher", "acme"); err != nil {
		t.Fatal(err)
	}
	found := func(dsn, words string) string {
		t.Helper()
		return looked(t, dsn, fmt.Sprintf(searchWords, words))
	}
	analyst := as(admin, "searcher")
	for words, want := range map[string]int{"full disk": 2, "fu": 0, `"disk full"`: 0, `"disk is full"`: 1, "Grüße": 2,
		"absent": 0, "disk -and": 1} {
		got := found(analyst, words)
		if n := strings.Count(got, "run_a"); n != want || strings.Contains(got, "run_g") {
			t.Errorf("%s: %d found, want %d\n%s", words, n, want, got)
		}
	}
	if got := looked(t, as(admin, "nobody_here"), `select count(*) from agent_search('disk')`); !strings.Contains(got,
		"0") {
		t.Errorf("a role without a grant finds %s", got)
	}
	if got := looked(t, owner, `set agentstream.tenant = 'globex'`,
		fmt.Sprintf(searchWords, "disk")); strings.Contains(got, "run_a") || !strings.Contains(got, "run_g") {
		t.Errorf("the owner for globex finds %s", got)
	}
	conn, err := pgx.Connect(t.Context(), analyst)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `select from agent_run_words`); err == nil {
		t.Error("an analyst reads the words of all tenants")
	}
	exec(t, pool(t, admin), `delete from agent_run_messages where run_id = 'run_a'`)
	if n := ask[int](t, pool(t, admin), `select count(*) from agent_run_words where run_id = 'run_a'`); n != 0 {
		t.Errorf("%d rows are left of a run that is gone", n)
	}
	if err := tables.SetSearch(t.Context(), owner, false); err != nil {
		t.Fatal(err)
	}
	message(a, "", "Without an index")
}

// TestSearchInAnyOrder: messages whose starts, pieces and ends are stored in whatever order are found, and making the
// index afterwards returns the same rows.
func TestSearchInAnyOrder(t *testing.T) {
	admin, owner := ownedMigrated(t)
	s := open(t, owner)
	if err := tables.SetSearch(t.Context(), owner, true); err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		packs := framing(rand.New(rand.NewPCG(uint64(round), 3)))
		if round > 0 {
			rand.Shuffle(len(packs), func(i, j int) { packs[i], packs[j] = packs[j], packs[i] })
		}
		for part := range slices.Chunk(packs, 1+rand.IntN(40)) {
			if _, err := s.Append(t.Context(), chunks(t, part...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const kept = `select coalesce(string_agg(concat_ws(' ', koder_user_id, run_id, lane, seq), E'\n' order by koder_user_id, run_id, lane, seq), '') from agent_run_words`
	p := pool(t, admin)
	got := ask[string](t, p, kept)
	if err := tables.SetSearch(t.Context(), owner, true); err != nil {
		t.Fatal(err)
	}
	if want := ask[string](t, p, kept); len(want) < 1000 || got != want {
		t.Errorf("kept are\n%s\nmade anew\n%s", firstDifference(got, want), firstDifference(want, got))
	}
}

// TestSearchPlan: words are looked up in their index, also by an analyst, whom row security holds; and tables of his
// own are not taken for those of the product.
func TestSearchPlan(t *testing.T) {
	admin, owner := ownedMigrated(t)
	open(t, owner)
	fillScale(t, pool(t, admin), 100_000, 2)
	if err := tables.SetSearch(t.Context(), owner, true); err != nil {
		t.Fatal(err)
	}
	exec(t, pool(t, admin), `create role searcher_too login`)
	if err := tables.GrantAnalyst(t.Context(), owner, "searcher_too", "tenant_7"); err != nil {
		t.Fatal(err)
	}
	looked(t, as(admin, "searcher_too"), `create temp table pg_policy (polqual text, polrelid oid, polname text, polroles oid[])`,
		`create temp table agent_run_words (koder_user_id text, run_id text, lane text, seq bigint, ts timestamptz, words tsvector)`,
		`select * from agent_search('absent')`, `select pg_stat_force_next_flush()`)
	if n := ask[int](t, pool(t, admin), `select idx_scan from pg_stat_user_indexes where indexrelname = 'agent_run_words_words'`); n == 0 {
		t.Error("the index of words is not used")
	}
	if got := looked(t, as(admin, "searcher_too"),
		`select count(*), min(koder_user_id), max(koder_user_id) from agent_search('word', 1000000)`); strings.Count(got, "tenant_7") != 2 {
		t.Error(got)
	}
}
