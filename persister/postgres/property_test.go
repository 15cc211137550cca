package postgres_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// history makes the packs of some runs of several days, with lanes that change hands, usage, states, doubtful
// payloads and a forger, as they could come from a log.
func history(r *rand.Rand) (packs []schema.Pack) {
	hostile := persistertest.Hostile()
	for i := range 4 {
		key := schema.RunKey{Tenant: []string{"acme", "globex"}[i%2], Run: fmt.Sprint("run_", i)}
		w := persistertest.NewWriter(key, fmt.Sprintf("202602%02d", 1+i%3))
		for n := range 12 {
			child := []string{"", "", "kid", "kid_2"}[r.IntN(4)]
			if r.IntN(4) == 0 {
				w.Lanes[child] = schema.Lane{Owner: fmt.Sprint("owner_", n), Epoch: uint64(1 + n)}
			}
			switch r.IntN(6) {
			case 5:
				packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeMessageStart,
					fmt.Sprintf(`{"message_id":"m","model":"model-%d"}`, n)),
					persistertest.Event(schema.TypeToolStart, `{"call_id":"c","tool":"grep"}`),
					persistertest.Event(schema.TypeToolEnd, `{"call_id":"c","ok":true}`)))
			case 0:
				packs = append(packs, w.Pack(child, usageEnd(1+r.IntN(100)), persistertest.Lifecycle(schema.StateRunning)))
			case 1:
				packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeTextDelta, hostile[r.IntN(10)])))
			default:
				packs = append(packs, w.Texts(child, 1+r.IntN(40)))
			}
		}
		forger := persistertest.NewWriter(key, fmt.Sprintf("202602%02d", 1+i%3))
		forger.Texts("", r.IntN(60)+1)
		packs = append(packs, forger.Pack("", usageEnd(1000), persistertest.Event(schema.TypeTextDelta, `{"text":"forged"}`)))
	}
	return packs
}

// tables returns all that an append writes but the times of writing.
func tableText(t testing.TB, p *pgxpool.Pool) string {
	t.Helper()
	return ask[string](t, p, `select concat(
		(select string_agg((to_jsonb(r) - 'created_at' - 'updated_at' - 'archived_at' - 'prev_seq' - 'model_seq' || jsonb_build_object('archived', archived_at is not null))::text,
			E'\n' order by koder_user_id, id) from agent_runs r), E'\n',
		(select string_agg((to_jsonb(l) - 'joined_at')::text, E'\n' order by koder_user_id, run_id, lane) from agent_run_lanes l), E'\n',
		(select string_agg(concat_ws('|', koder_user_id, run_day, run_id, seq, id, coalesce(child_id, 'null'), type, ts, line,
			coalesce(payload::text, 'null')), E'\n' order by koder_user_id, run_id, seq) from agent_run_events))`) + ask[string](t, p, frameTables)
}

// deliver makes batches as a log would deliver packs to persisters that fail now and then: again, overlapping,
// in some disorder, and in the end all.
func deliver(r *rand.Rand, packs []schema.Pack) (out [][]schema.Pack) {
	for at := 0; at < len(packs); {
		from := max(0, at-r.IntN(6))
		to := min(len(packs), at+1+r.IntN(12))
		batch := slices.Clone(packs[from:to])
		if r.IntN(3) == 0 {
			r.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		}
		if r.IntN(4) == 0 {
			batch = append(batch, batch[r.IntN(len(batch))])
		}
		out = append(out, batch)
		at = to - r.IntN(2)
		if to == len(packs) {
			break
		}
	}
	return out
}

// TestSameAsInserted: whatever comes in whatever batches through several stores, the tables and the answers
// are those of a store that inserts everything. Some batches find that floors have moved.
func TestSameAsInserted(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 17))
			dsn, plainDSN := migrated(t), migrated(t)
			stores := []*postgres.Store{open(t, dsn), open(t, dsn)}
			plain := open(t, plainDSN)
			plain.Copyless()
			p, q := pool(t, dsn), pool(t, plainDSN)
			packs := history(r)
			r.Shuffle(len(packs)/12, func(i, j int) { packs[i*12], packs[j*12] = packs[j*12], packs[i*12] })
			for i, batch := range deliver(r, packs) {
				if r.IntN(6) == 0 {
					run, part := r.IntN(4), r.IntN(4)
					for _, p := range []*pgxpool.Pool{p, q} {
						exec(t, p, fmt.Sprintf(`update agent_runs set floor_seq = greatest(floor_seq, case when %d = 0 and %d = 3 then %d else last_seq * %d / 4 end),
							archived_at = now() where id = 'run_%d'`, run, part, schema.MaxSeq, part, run))
						exec(t, p, `delete from agent_run_events e using agent_runs r where r.koder_user_id = e.koder_user_id and r.id = e.run_id and e.seq <= r.floor_seq`)
					}
				}
				got, want := appendPacks(t, stores[r.IntN(2)], batch...), appendPacks(t, plain, batch...)
				slices.SortFunc(got.Conflicts, byPlace)
				slices.SortFunc(want.Conflicts, byPlace)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("batch %d: %+v, by inserts %+v", i, got, want)
				}
			}
			if got, want := tableText(t, p), tableText(t, q); got != want {
				t.Errorf("tables are\n%s\nby inserts\n%s", got, want)
			}
		})
	}
}

func byPlace(a, b persister.Conflict) int {
	if a.Chunk != b.Chunk {
		return a.Chunk - b.Chunk
	}
	return a.Row - b.Row
}

// TestSameAsInsertedAtOnce: the same by several stores at once, without forgeries: of two contents of a place
// the first would stay, whichever that is.
func TestSameAsInsertedAtOnce(t *testing.T) {
	dsn, plainDSN := migrated(t), migrated(t)
	r := rand.New(rand.NewPCG(1, 18))
	packs := slices.DeleteFunc(history(r), forged)
	plain := open(t, plainDSN)
	plain.Copyless()
	appendPacks(t, plain, packs...)
	var wg sync.WaitGroup
	inserted := make([]int, 4)
	var races int64
	stores := make([]*postgres.Store, len(inserted))
	for i := range inserted {
		stores[i] = open(t, dsn)
	}
	for i, s := range stores {
		mine := deliver(rand.New(rand.NewPCG(uint64(i), 19)), packs)
		wg.Go(func() {
			for _, batch := range mine {
				c, err := persister.Chunks(batch...)
				var res persister.Result
				if err == nil {
					res, err = s.Append(t.Context(), c)
				}
				if err != nil || len(res.Conflicts) > 0 {
					t.Errorf("%+v, %v", res, err)
				}
				inserted[i] += res.Inserted
			}
		})
	}
	wg.Wait()
	sum := 0
	for i, n := range inserted {
		sum += n
		races += stores[i].Races()
	}
	p, q := pool(t, dsn), pool(t, plainDSN)
	if n := ask[int](t, p, `select count(*) from agent_run_events`); n != sum {
		t.Errorf("%d rows, %d were said to be inserted", n, sum)
	}
	if got, want := tableText(t, p), tableText(t, q); got != want {
		t.Errorf("tables are\n%s\nby inserts\n%s", got, want)
	}
	t.Logf("%d rows by %d stores, %d transactions were done again", sum, len(stores), races)
}

// forged reports whether a pack is a forger's.
func forged(p schema.Pack) bool { return bytes.Contains(p.Body, []byte(`{"text":"forged"}`)) }
