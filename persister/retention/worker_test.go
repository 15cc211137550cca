package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/retention"
	"agentstream/schema"
)

func ptr(n int) *int { return &n }

// TestExpiry walks one run of each kind over the time at which it is due.
func TestExpiry(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		begin := w.now.Add(9 * time.Hour)
		type one struct {
			tenant string
			state  schema.RunState
			after  int // days; 0: never
		}
		kinds := map[string]one{
			"done": {"acme", schema.StateDone, 90}, "error": {"acme", schema.StateError, 30},
			"aborted": {"acme", schema.StateAborted, 30},
			"open":    {"acme", "", 0}, "paused": {"acme", schema.StatePaused, 0}, "short": {"brief", schema.StateDone, 10},
			"ended": {"brief", schema.StateError, 30}, "kept": {"never", schema.StateDone, 0},
			"held":  {"acme", schema.StateDone, 0},
			"whole": {"frozen", schema.StateError, 0},
		}
		packs := make(map[string]schema.Pack)
		for id, k := range kinds {
			_, packs[id] = w.run(k.tenant, id, begin, 5, k.state)
			w.append(packs[id])
			if k.state.Final() {
				w.archived(packs[id].Key)
			}
		}
		w.logged(packs["short"])
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check(s.SetOverride(t.Context(), "brief", persister.Override{Completed: ptr(10)}))
		check(s.SetOverride(t.Context(), "never", persister.Override{Completed: ptr(persister.KeepForEver)}))
		_, err := s.AddHold(t.Context(), schema.RunKey{Tenant: "acme", Run: "held"}, "case 7")
		check(err)
		_, err = s.AddHold(t.Context(), schema.RunKey{Tenant: "frozen"}, "audit")
		check(err)
		end := begin.Add(5 * time.Second) // the last event
		for day := 1; day <= 400; day++ {
			for _, at := range []time.Duration{0, time.Nanosecond * 1000} {
				w.now = end.Add(days(day) + at)
				if day != 10 && day != 30 && day != 90 && day != 400 {
					continue
				}
				w.pass()
				for id, k := range kinds {
					key := schema.RunKey{Tenant: k.tenant, Run: id}
					gone := k.after > 0 && w.now.After(end.Add(days(k.after)))
					if !gone {
						w.wantEvents(key, packs[id])
						continue
					}
					w.wantEvents(key)
					place, err := s.Place(t.Context(), key)
					if h, herr := s.Head(t.Context(), key, ""); err != nil || herr != nil || h.Last != 5 && day < 390 ||
						place.Expired != h.Last || place.URI != "" {
						t.Fatalf("day %d: %s: %+v %+v %v %v", day, id, h, place, err, herr)
					}
				}
			}
		}
		if holding, err := w.log.Holding(t.Context(), []schema.RunKey{{Tenant: "brief", Run: "short"}}); err != nil ||
			len(holding) > 0 {
			t.Fatalf("the log has %v, %v", holding, err)
		}
		if left := w.blobNames(); len(left) != 3 {
			t.Fatalf("blobs left: %q", left)
		}
		w.wantListed("acme", "open", "paused", "held")
		w.now = end.Add(days(900)) // the tombstones' time is over too
		w.pass()
		if h, err := s.Head(t.Context(), schema.RunKey{Tenant: "acme", Run: "done"}, ""); err != nil || h.HasEvents() {
			t.Fatalf("a tombstone stands: %+v, %v", h, err)
		}
		// A hold that is lifted holds nothing back.
		if was, err := s.RemoveHold(t.Context(), schema.RunKey{Tenant: "frozen"}); err != nil || !was {
			t.Fatal(was, err)
		}
		if r := w.pass(); r.Expired != 1 {
			t.Fatalf("%+v", r)
		}
		w.wantEvents(schema.RunKey{Tenant: "frozen", Run: "whole"})
	})
}

// TestFollowUpOfExpired: what comes after an expired run is numbered on, kept, and expires by its own time.
func TestFollowUpOfExpired(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		wr, a := w.run("acme", "r", w.now, 5, schema.StateDone)
		w.append(a)
		w.now = w.now.Add(days(91))
		if r := w.pass(); r.Expired != 1 || r.Events != 5 {
			t.Fatalf("%+v", r)
		}
		w.wantListed("acme")
		if res := w.append(a); res.Dropped != 5 { // the log hands it out again
			t.Fatalf("%+v", res)
		}
		b := followUp(wr, w.now, schema.StateDone)
		w.append(b)
		w.wantEvents(a.Key, b)
		w.wantListed("acme", "r")
		w.now = w.now.Add(days(89))
		w.pass()
		w.wantEvents(a.Key, b)
		w.now = w.now.Add(days(2))
		w.pass()
		w.wantEvents(a.Key)
		if p, err := s.Place(t.Context(), a.Key); err != nil || p.Expired != 7 || p.Last != 7 {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}

// TestFutureClock: a producer that lives in the next century does not keep its run for ever.
func TestFutureClock(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		_, p := w.run("acme", "r", time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC), 3, schema.StateDone)
		_, q := w.run("acme", "q", time.Now(), 3, schema.StateDone)
		w.append(p, q)
		w.now = time.Now().Add(days(89))
		w.pass()
		w.wantEvents(p.Key, p)
		w.now = time.Now().Add(days(91))
		w.pass()
		w.wantEvents(q.Key)
		w.now = time.Date(2190, 1, 1, 1, 0, 0, 0, time.UTC)
		w.policy.Completed = time.Hour
		w.pass()
		w.wantEvents(p.Key) // as soon as its own day has come, at the latest
	})
}

// TestImport: a run of last year that is stored now stays until the day of its import is as old as the shortest time.
func TestImport(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		_, p := w.run("acme", "r", time.Now().Add(-days(365)), 3, schema.StateDone)
		p.Head.Day = time.Now().UTC().Format("20060102")
		w.append(p)
		w.now = time.Now().Add(days(29))
		w.pass()
		w.wantEvents(p.Key, p)
		w.now = time.Now().Add(days(31))
		w.pass()
		w.wantEvents(p.Key)
	})
}

// TestCooling: rows of archived runs go, the blob stays.
func TestCooling(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		w.policy.Rows = days(7)
		_, a := w.run("acme", "a", w.now, 5, schema.StateDone)
		_, b := w.run("acme", "b", w.now, 5, schema.StateDone)
		w.append(a, b)
		w.archived(a.Key)
		w.now = w.now.Add(days(8))
		if r := w.pass(); r.Cooled != 1 || r.Expired != 0 || r.Events != 5 || r.Blobs != 0 {
			t.Fatalf("%+v", r)
		}
		w.wantEvents(b.Key, b)
		if p, err := s.Place(t.Context(), a.Key); err != nil || p.Floor != 5 || p.Expired != 0 || p.URI == "" ||
			len(w.blobNames()) != 1 {
			t.Fatalf("%+v, %v, %q", p, err, w.blobNames())
		}
		w.wantListed("acme", "a", "b")
		w.now = w.now.Add(days(90))
		if r := w.pass(); r.Expired != 2 || r.Blobs != 1 || r.Events != 5 {
			t.Fatalf("%+v", r)
		}
		if n := w.blobNames(); len(n) != 0 {
			t.Fatalf("%q", n)
		}
	})
}

// TestCoolingNeedsItsBlob: rows whose blob is not there stay, and are replayed.
func TestCoolingNeedsItsBlob(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		w.policy.Rows = days(7)
		_, a := w.run("acme", "a", w.now, 5, schema.StateDone)
		_, b := w.run("acme", "b", w.now, 5, schema.StateDone)
		w.append(a, b)
		w.archived(a.Key)
		w.archived(b.Key)
		if err := w.blobs.Delete(t.Context(), blob.Name(a.Key, a.Head.Day, 5)); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(days(8))
		for _, blobs := range []retention.BlobRemover{nil, w.blobs} {
			cfg := w.config()
			cfg.Blobs = blobs
			k, err := retention.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r, err := k.Pass(t.Context())
			if some := blobs != nil; err != nil || (r.Cooled == 1) != some || (r.Failed == 1) != some {
				t.Fatalf("%+v, %v", r, err)
			}
			w.wantEvents(a.Key, a)
		}
	})
}

// steps is everything that a Worker does to the world, any of which may be its last.
type steps struct {
	store
	log   retention.LogPurger
	blobs retention.BlobRemover
	left  int // calls until the process dies
}

// steppedLog is the log of such a process.
type steppedLog struct {
	retention.LogPurger
	s *steps
}

var errKilled = errors.New("killed")

func (s *steps) step() error {
	if s.left--; s.left < 0 {
		return errKilled
	}
	return nil
}

func (s *steps) Expire(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error) {
	if err := s.step(); err != nil {
		return nil, err
	}
	return s.store.Expire(ctx, runs, now)
}

func (s *steps) Cool(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error) {
	if err := s.step(); err != nil {
		return nil, err
	}
	return s.store.Cool(ctx, runs, now)
}

func (s *steps) RemoveRows(ctx context.Context, scraps []persister.Scrap, limit int) (int, bool, error) {
	if err := s.step(); err != nil {
		return 0, false, err
	}
	return s.store.RemoveRows(ctx, scraps, limit)
}

func (s *steps) DropDays(ctx context.Context, days []string) ([]string, error) {
	if err := s.step(); err != nil {
		return nil, err
	}
	return s.store.DropDays(ctx, days)
}

func (s *steps) Discard(ctx context.Context, ids []int64) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.store.Discard(ctx, ids)
}

func (s *steps) RemoveTombstones(ctx context.Context, list []persister.Tombstone) (int, error) {
	if err := s.step(); err != nil {
		return 0, err
	}
	return s.store.RemoveTombstones(ctx, list)
}

func (s *steps) Remove(ctx context.Context, key schema.RunKey, uri string) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.blobs.Remove(ctx, key, uri)
}

func (s *steps) Check(ctx context.Context, key schema.RunKey, place persister.Place) error {
	return s.blobs.Check(ctx, key, place)
}

func (s *steps) Wipe(ctx context.Context, key schema.RunKey, day string) (int, error) {
	return s.blobs.Wipe(ctx, key, day)
}

func (s *steps) purge(ctx context.Context, key schema.RunKey, through schema.Seq) (int, int, error) {
	if err := s.step(); err != nil {
		return 0, 0, err
	}
	return s.log.Purge(ctx, key, through)
}

func (l steppedLog) Purge(ctx context.Context, key schema.RunKey, through schema.Seq) (int, int, error) {
	return l.s.purge(ctx, key, through)
}

// TestKilledAtEveryStep: wherever a pass ends, nothing half gone is given out, and the next one completes it.
func TestKilledAtEveryStep(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		w.policy.Rows = days(7)
		killed := 0
		for at := 0; ; at++ {
			begin := w.now
			day := func(id string) string { return fmt.Sprintf("%s_%d", id, at) }
			_, dead := w.run("acme", day("dead"), begin, 12, schema.StateError)
			_, cold := w.run("acme", day("cold"), begin, 12, schema.StateDone)
			_, warm := w.run("acme", day("warm"), begin.Add(days(1)), 12, schema.StateError)
			_, keep := w.run("acme", day("keep"), begin.Add(days(1)), 12, schema.StateDone)
			w.append(dead, cold, warm, keep)
			w.logged(dead, warm)
			for _, p := range []schema.Pack{dead, cold, warm} {
				w.archived(p.Key)
			}
			w.now = begin.Add(days(40))
			cfg := w.config()
			st := &steps{store: s, log: w.log, blobs: w.blobs, left: at}
			cfg.Runs, cfg.Trash, cfg.Tombstones, cfg.Log, cfg.Blobs, cfg.BatchRows = st, st, st, steppedLog{w.log, st}, st, 5
			k, err := retention.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = k.Pass(t.Context())
			if st.left < 0 {
				killed++
			}
			for _, p := range []schema.Pack{dead, warm} { // all or nothing
				_, body, rerr := replay(s.Packs(t.Context(), p.Key, 0, schema.MaxSeq))
				if rerr != nil || len(body) > 0 && !bytes.Equal(body, p.Body) {
					t.Fatalf("killed at %d: %s: %d of %d bytes, %v", at, p.Key, len(body), len(p.Body), rerr)
				}
			}
			w.wantEvents(keep.Key, keep)
			w.pass()
			for _, p := range []schema.Pack{dead, cold, warm} {
				w.wantEvents(p.Key)
			}
			w.wantEvents(keep.Key, keep)
			scraps, serr := s.Scraps(t.Context(), 0, 100)
			holding, herr := w.log.Holding(t.Context(), []schema.RunKey{dead.Key, warm.Key})
			names := w.blobNames()
			if serr != nil || herr != nil || len(scraps) > 0 || len(holding) > 0 || len(names) != 1 {
				t.Fatalf("killed at %d: scraps %v, log %v, blobs %q, %v, %v", at, scraps, holding, names, serr, herr)
			}
			if _, partition, err := s.LiveRuns(t.Context(), dead.Head.Day); err != nil || partition {
				t.Fatalf("killed at %d: the partition of %s stands, %v", at, dead.Head.Day, err)
			}
			if n, err := w.blobs.Wipe(t.Context(), cold.Key, cold.Head.Day); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			w.now = w.now.Add(days(2))
			if st.left >= 0 {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		if killed < 8 {
			t.Fatalf("only %d steps", killed)
		}
		t.Logf("killed at %d steps", killed)
	})
}

// TestPlanChangesNothing: the plan lists what the pass then does.
func TestPlanChangesNothing(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		_, a := w.run("acme", "a", w.now, 10, schema.StateError)
		_, b := w.run("acme", "b", w.now.Add(days(1)), 10, schema.StateAborted)
		_, c := w.run("acme", "c", w.now.Add(days(1)), 10, schema.StateDone)
		_, d := w.run("beta", "d", w.now, 10, schema.StateError)
		w.append(a, b, c, d)
		w.archived(a.Key)
		w.logged(a)
		w.now = w.now.Add(days(40))
		snapshot := func() (out []string) {
			for _, p := range []schema.Pack{a, b, c, d} {
				place, err := s.Place(t.Context(), p.Key)
				_, body, rerr := replay(s.Packs(t.Context(), p.Key, 0, schema.MaxSeq))
				out = append(out, fmt.Sprintf("%+v %s %v %v", place, body, err, rerr))
			}
			scraps, err := s.Scraps(t.Context(), 0, 100)
			holding, herr := w.log.Holding(t.Context(), []schema.RunKey{a.Key})
			return append(out, fmt.Sprint(scraps, err, holding, herr, w.blobNames()))
		}
		before := snapshot()
		plan, err := retention.MakePlan(t.Context(), s, w.policy, w.now, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(snapshot(), before) {
			t.Fatal("the plan has changed something")
		}
		runs, rows, blobs := 0, int64(0), 0
		for _, g := range plan.Groups {
			runs, rows, blobs = runs+g.Runs, rows+g.Rows, blobs+g.Blobs
			if g.Bytes == 0 || len(g.IDs) != g.Runs || g.What != "expire" {
				t.Fatalf("%+v", g)
			}
		}
		if len(plan.Groups) != 3 || runs != 3 || rows != 30 || blobs != 1 {
			t.Fatalf("%+v", plan)
		}
		r := w.pass()
		if r.Expired != runs || r.Events != rows || r.Blobs != blobs || r.Days != len(plan.Days) {
			t.Fatalf("planned %+v, done %+v", plan, r)
		}
	})
}

// TestHoldAgainstExpiry: of a hold and an expiry at the same time, one is first and the other sees it.
func TestHoldAgainstExpiry(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		begin := w.now
		w.now = begin.Add(days(100))
		held, expired := 0, 0
		for i := range 40 {
			_, p := w.run("acme", fmt.Sprintf("r%d", i), begin, 2, schema.StateDone)
			w.append(p)
			told := make(chan bool, 1)
			go func() {
				was, err := s.AddHold(t.Context(), p.Key, "case")
				if err != nil {
					t.Error(err)
				}
				told <- was
			}()
			w.pass()
			was := <-told
			place, err := s.Place(t.Context(), p.Key)
			if err != nil || was != (place.Expired > 0) {
				t.Fatalf("told %v, is %+v, %v", was, place, err)
			}
			if was {
				expired++
			} else {
				held++
			}
		}
		t.Logf("%d held, %d had expired", held, expired)
	})
}
