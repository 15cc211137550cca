package retention_test

import (
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// session begins a run that a session API has opened, ends it, unless state is "", and deletes its session.
func (w *world) session(id string, state schema.RunState) (*persistertest.Writer, []schema.Pack) {
	wr := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: id}, w.now.Format("20060102"))
	wr.At(w.now)
	packs := []schema.Pack{wr.Pack("", persistertest.Event(schema.TypeSessionCreated, `{"title":"secret of `+id+`"}`),
		persistertest.Lifecycle(schema.StateRunning)),
		wr.Texts("kid", 3)}
	gone := persistertest.Event(schema.TypeSessionDeleted, `{}`)
	if state == "" {
		return wr, append(packs, wr.Pack("", gone))
	}
	return wr, append(packs, wr.Pack("", persistertest.Lifecycle(state)),
		wr.Pack("", persistertest.Lifecycle(schema.StatePlanning), gone, persistertest.Lifecycle(state)))
}

// forgotten checks that nothing of a run is given out, by the store or by the log.
func (w *world) forgotten(key schema.RunKey) {
	w.Helper()
	w.wantEvents(key)
	if yes, err := w.store.IsForgotten(w.Context(), key); err != nil || !yes {
		w.Fatalf("%s: marked %v, %v", key, yes, err)
	}
	if h, err := w.log.Head(w.Context(), key); err != nil || h.HasEvents() {
		w.Fatalf("%s: the log has %+v, %v", key, h, err)
	}
	if h, err := w.store.Head(w.Context(), key, ""); err != nil || h.HasEvents() {
		w.Fatalf("%s: the store has %+v, %v", key, h, err)
	}
}

// TestSessionDeleted: a run whose session was deleted is removed by the next pass, whatever its state and however young
// it is, as if somebody had deleted it; a hold is before that.
func TestSessionDeleted(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		open, openPacks := w.session("open", "")
		_, over := w.session("over", schema.StateDone)
		_, held := w.session("held", schema.StateDone)
		_, expired := w.session("expired", schema.StateError)
		_, other := w.run("acme", "other", w.now, 5, "")
		w.append(slices.Concat(openPacks, over, held, expired, []schema.Pack{other})...)
		w.logged(slices.Concat(openPacks, over, held, []schema.Pack{other})...)
		w.archived(over[0].Key)
		w.putDeadLetters(open.Key, 2)
		w.putDeadLetters(other.Key, 1)
		if _, err := s.AddHold(t.Context(), held[0].Key, "case 7"); err != nil {
			t.Fatal(err)
		}
		if done, err := s.Expire(t.Context(), overdue(w, expired[0].Key), w.now); err != nil || len(done) != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		plan, err := retention.MakePlan(t.Context(), s, w.policy, w.now, true)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, g := range plan.Groups {
			if g.What == "delete" {
				ids = append(ids, g.IDs...)
			}
		}
		if slices.Sort(ids); !slices.Equal(ids, []string{"expired", "open", "over"}) {
			t.Fatalf("%+v", plan)
		}
		// Who keeps without these parts marks nothing.
		without := w.config()
		without.Forgetting = nil
		if k, err := retention.New(without); err != nil {
			t.Fatal(err)
		} else if r, err := k.Pass(t.Context()); err != nil || r.Deleted > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		r := w.pass()
		if r.Deleted != 3 || r.Expired != 0 || r.Events != 6+9 || r.Blobs != 1 || r.Messages != len(openPacks)+len(over) {
			t.Fatalf("%+v", r)
		}
		for _, p := range [][]schema.Pack{openPacks, over, expired} {
			w.forgotten(p[0].Key)
		}
		w.wantListed("acme", "held", "other")
		w.wantEvents(held[0].Key, held...)
		w.wantEvents(other.Key, other)
		if deadLetters, err := s.DeadLetters(t.Context(), 10); err != nil || len(deadLetters) != 1 {
			t.Fatalf("%d letters, %v", len(deadLetters), err)
		}
		if len(w.blobNames()) != 0 {
			t.Fatalf("%q", w.blobNames())
		}
		// What comes late is dropped, and does not bring the session back.
		late := open.Texts("", 2)
		if res := w.append(append(openPacks, late)...); res.Inserted != 0 || res.Dropped != 8 {
			t.Fatalf("%+v", res)
		}
		w.logged(late)
		if r := w.pass(); r.Deleted != 0 || r.Messages != 1 {
			t.Fatalf("%+v", r)
		}
		// The hold is lifted; the marks go last.
		if _, err := s.RemoveHold(t.Context(), held[0].Key); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(11 * time.Minute)
		if r := w.pass(); r.Deleted != 1 || r.Tombstones != 3 {
			t.Fatalf("%+v", r)
		}
		w.forgotten(held[0].Key)
		left, err := s.Remains(t.Context(), open.Key)
		if err != nil || left != (persister.Remains{}) {
			t.Fatalf("%+v, %v", left, err)
		}
	})
}

// overdue is a run as the list of those that are over would name it.
func overdue(w *world, key schema.RunKey) []persister.EndedRun {
	w.Helper()
	place, err := w.store.Place(w.Context(), key)
	if err != nil {
		w.Fatal(err)
	}
	return []persister.EndedRun{{Key: key, Place: place}}
}

// TestSessionExpires: what was said of a session, its title, say, goes with its events, and does not come back when
// the run goes on; what is said of it from then on is kept.
func TestSessionExpires(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		wr := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "said"}, w.now.Format("20060102"))
		wr.At(w.now)
		w.append(wr.Pack("", persistertest.Event(schema.TypeSessionCreated,
			`{"agent":"agent_1","title":"secret","metadata":{"who":"ann"}}`),
			persistertest.Lifecycle(schema.StateDone)))
		if done, err := s.Expire(t.Context(), overdue(w, wr.Key), w.now); err != nil || len(done) != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		listed := func(q schema.RunsQuery) string {
			t.Helper()
			q.Limit = 9
			runs, err := s.Runs(t.Context(), "acme", q)
			if err != nil || len(runs) > 1 {
				t.Fatalf("%+v, %v", runs, err)
			}
			if len(runs) == 0 {
				return "none"
			}
			return string(runs[0].Session)
		}
		w.append(wr.Pack("", persistertest.Lifecycle(schema.StatePlanning)))
		if got := listed(schema.RunsQuery{Sessions: true}); got != "" {
			t.Errorf("what was said is there again: %s", got)
		}
		if got := listed(schema.RunsQuery{Sessions: true, Agent: "agent_1"}); got != "none" {
			t.Errorf("its agent finds it: %s", got)
		}
		w.append(wr.Pack("", persistertest.Event(schema.TypeSessionUpdated, `{"title":"new"}`)))
		if got := listed(schema.RunsQuery{Sessions: true}); got != `{"title":"new"}` {
			t.Errorf("session is %s", got)
		}
		if got := listed(schema.RunsQuery{}); got != "" {
			t.Errorf("who asks for runs gets %s", got)
		}
	})
}
