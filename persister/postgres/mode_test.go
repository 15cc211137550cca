package postgres_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// TestQueryModes: an operator's DSN may set how the driver sends statements, and it does so for
// poolers. All modes store the same, null and the edges of days and times included.
func TestQueryModes(t *testing.T) {
	var first string
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			dsn := migrated(t)
			s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn + "&default_query_exec_mode=" + mode})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var want []byte
			var packs []schema.Pack
			w := persistertest.NewWriter(key, day)
			for _, payload := range persistertest.Hostile() {
				packs = append(packs, w.Pack("", persistertest.Event(schema.TypeTextDelta, payload)))
			}
			packs = append(packs, w.Texts("kid", 2))
			for _, p := range packs {
				want = append(want, p.Body...)
			}
			batch := chunks(t, packs...)
			for run, at := range map[string]time.Time{"early": time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC),
				"late": time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.FixedZone("", 3600))} {
				w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run}, day)
				w.Head.Day = at.UTC().Format("20060102")
				c := chunks(t, w.Texts("", 1))
				c[0].Rows[0].TS = at
				batch = append(batch, c...)
			}
			for i := range uint64(2) { // new, and once more
				transfer := &persister.Transfer{Chunks: batch, From: place("L_0", i), To: place("L_0", i+1)}
				transfer.To.StoredAt = time.Unix(1, 999999999)
				if res, err := s.Transfer(t.Context(), transfer); err != nil || len(res.Conflicts) > 0 {
					t.Fatalf("%+v, %v", res, err)
				}
				if _, err := s.Transfer(t.Context(), transfer); !errors.Is(err, persister.ErrOvertaken) {
					t.Fatalf("the same transfer again: %v", err)
				}
			}
			if got, err := s.Offsets(t.Context()); err != nil || len(got) != 1 || !got[0].Same(place("L_0", 2)) ||
				!got[0].StoredAt.Equal(time.Unix(1, 999999999)) || got[0].Idle < 0 || got[0].Idle > time.Hour {
				t.Fatalf("%+v, %v", got, err)
			}
			forged := persistertest.NewWriter(key, day).Texts("", 1)
			if res, err := s.Append(t.Context(), chunks(t, forged)); err != nil || len(res.Conflicts) != 1 {
				t.Fatalf("another content: %+v, %v", res, err)
			}
			var got []byte
			for p, err := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p.Body...)
			}
			if !bytes.Equal(got, want) {
				t.Error("lines differ from the log")
			}
			var table string
			if err := pool(t, dsn).QueryRow(t.Context(), `select string_agg(concat_ws('|', koder_user_id, run_day, run_id, seq,
				coalesce(child_id, 'null'), type, ts at time zone 'UTC', coalesce(md5(payload::text), 'null')), E'\n' order by run_id, seq)
				from agent_run_events`).Scan(&table); err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = table
			}
			if table != first {
				t.Errorf("rows are\n%s\nand were\n%s", table, first)
			}
		})
	}
}
