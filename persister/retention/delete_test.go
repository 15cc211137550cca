package retention_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/retention"
	"agentstream/schema"
)

func (w *world) putDeadLetters(key schema.RunKey, n int) {
	w.Helper()
	deadLetters := make([]persister.DeadLetter, n)
	for i := range deadLetters {
		deadLetters[i] = persister.DeadLetter{Stream: "S", Position: uint64(i + 1), Key: key, Subject: "s",
			Body: []byte(key.String()), Reason: persister.ReasonRefused}
	}
	if err := w.store.PutDeadLetters(w.Context(), deadLetters); err != nil {
		w.Fatal(err)
	}
}

// TestDeleteRun: everything of a run goes, of whatever comes late as well, and nothing of its neighbours.
func TestDeleteRun(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		wr, p := w.run("acme", "run", w.now, 20, schema.StateDone)
		_, q := w.run("acme", "run_2", w.now, 20, schema.StateDone)
		_, other := w.run("beta", "run", w.now, 20, schema.StateDone)
		p.Batch = "0123456789abcdef0123456789abcdef"
		kv, err := w.server.JS.KeyValue(t.Context(), natskit.KeysBucket)
		if err == nil {
			_, err = kv.Create(t.Context(), p.Batch, []byte("{}"))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []schema.Pack{p, q, other} {
			w.append(x)
			w.logged(x)
			w.archived(x.Key)
			w.putDeadLetters(x.Key, 3)
		}
		d := w.deleter()
		out, err := d.Run(t.Context(), p.Key)
		if err != nil || !out.Clean() || out.Runs != 1 || out.Events != 20 || out.Blobs != 1 || out.Messages != 1 ||
			out.Keys != 1 || out.Letters != 3 {
			t.Fatalf("%+v, %v", out, err)
		}
		w.wantEvents(p.Key)
		w.wantEvents(q.Key, q)
		w.wantEvents(other.Key, other)
		if len(w.blobNames()) != 2 {
			t.Fatalf("%q", w.blobNames())
		}
		// A persister had it in hand; a writer has not heard of it; a dead letter was on its way.
		late := followUp(wr, w.now, "")
		if res := w.append(p, late); res.Dropped != 21 || res.Inserted != 0 {
			t.Fatalf("%+v", res)
		}
		w.logged(late)
		w.putDeadLetters(p.Key, 1)
		if h, err := s.Head(t.Context(), p.Key, ""); err != nil || h.HasEvents() {
			t.Fatalf("%+v, %v", h, err)
		}
		if yes, err := s.IsForgotten(t.Context(), p.Key); err != nil || !yes {
			t.Fatal(yes, err)
		}
		if r := w.pass(); r.Messages != 1 || r.Tombstones != 0 {
			t.Fatalf("%+v", r)
		}
		w.now = w.now.Add(11 * time.Minute)
		if r := w.pass(); r.Tombstones != 1 {
			t.Fatalf("%+v", r)
		}
		left, err := s.Remains(t.Context(), p.Key)
		if err != nil || left != (persister.Remains{}) {
			t.Fatalf("%+v, %v", left, err)
		}
		// The id is free: a new run of that name begins at 1.
		_, again := w.run("acme", "run", w.now, 3, "")
		w.append(again)
		w.wantEvents(p.Key, again)
		if _, err := d.Run(t.Context(), schema.RunKey{Tenant: "acme", Run: "never"}); !errors.Is(err, retention.ErrUnknown) {
			t.Fatal(err)
		}
	})
}

// TestDeleteTenant: also what only the log knows, and what operators have set.
func TestDeleteTenant(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		for i := range 30 {
			_, p := w.run("acme", fmt.Sprintf("r%02d", i), w.now.Add(days(i)), 4, schema.StateDone)
			w.append(p)
			if i%3 == 0 {
				w.archived(p.Key)
			}
		}
		_, fresh := w.run("acme", "fresh", w.now, 4, "")
		_, other := w.run("acme_2", "r00", w.now, 4, schema.StateDone)
		w.append(other)
		w.logged(fresh, other)
		w.putDeadLetters(fresh.Key, 2)
		w.putDeadLetters(schema.RunKey{Tenant: "acme"}, 1)
		if err := s.SetOverride(t.Context(), "acme", persister.Override{Completed: ptr(1)}); err != nil {
			t.Fatal(err)
		}
		held := schema.RunKey{Tenant: "acme", Run: "r07"}
		if _, err := s.AddHold(t.Context(), held, "case"); err != nil {
			t.Fatal(err)
		}
		d := w.deleter()
		if out, err := d.Tenant(t.Context(), "acme", nil); !errors.Is(err, persister.ErrHeld) || out.Runs > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		if _, err := d.Run(t.Context(), held); !errors.Is(err, persister.ErrHeld) {
			t.Fatal(err)
		}
		if _, err := s.RemoveHold(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		out, err := d.Tenant(t.Context(), "acme", nil)
		if err != nil || !out.Clean() || out.Runs != 31 || out.Events != 120 || out.Blobs != 10 || out.Letters != 3 ||
			out.Messages != 1 || out.Left.Marks != 31 {
			t.Fatalf("%+v, %v", out, err)
		}
		w.wantEvents(other.Key, other)
		w.wantListed("acme")
		w.wantListed("acme_2", "r00")
		w.now = w.now.Add(days(1))
		if r := w.pass(); r.Tombstones != 31 {
			t.Fatalf("%+v", r)
		}
		if next, err := s.NextTenant(t.Context(), ""); err != nil || next != "acme_2" {
			t.Fatal(next, err)
		}
	})
}

// TestPurgeThrough leaves alone what came behind.
func TestPurgeThrough(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		w := newWorld(t, s)
		w.policy.Completed = time.Hour
		wr, p := w.run("acme", "r", w.now, 5, schema.StateDone)
		w.append(p)
		w.logged(p)
		w.now = w.now.Add(2 * time.Hour)
		late := followUp(wr, w.now, "")
		w.logged(late) // not stored yet: the run expires all the same
		if r := w.pass(); r.Expired != 1 || r.Messages != 1 {
			t.Fatalf("%+v", r)
		}
		w.append(late)
		w.wantEvents(p.Key, late)
		if head, err := w.log.Head(t.Context(), p.Key); err != nil || head.Last != 6 {
			t.Fatalf("%+v, %v", head, err)
		}
	})
}

var _ retention.LogPurger = (*natsjs.Purger)(nil)
