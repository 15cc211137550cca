package blob_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// steps is the distance between two cursors. Each reads the rest of the run, so that all of
// a long one are for AGENTSTREAM_FULL.
func steps(how string, every bool, last schema.Seq) schema.Seq {
	switch {
	case os.Getenv("AGENTSTREAM_FULL") != "":
		return 1
	case how == "cold" && every && last <= 300:
		return 1
	case how == "cold":
		return 19
	}
	return 61
}

// identical compares one scenario. All cursors of cold runs that are not long are read where nothing is asked
// over a connection; of the others some.
func (b *bench) identical(s schematest.Scenario, every bool) {
	b.Helper()
	key := schema.RunKey{Tenant: key.Tenant, Run: "run_" + s.Name}
	single := schematest.Packs(key, s, 1)
	packs := schematest.Packs(key, s, 7)
	b.append(packs...)
	last := single[len(single)-1].Head
	if !last.State.Final() {
		end := last
		e := schema.Event{ID: schematest.EventID(last.Last + 1), TS: schematest.Epoch.Format(schema.TimeLayout),
			Type:  schema.TypeRunLifecycle,
			RunID: key.Run, Seq: last.Last + 1, Payload: []byte(`{"state":"done","reason":null}`)}
		if err := end.Advance(e.Type, "", e.ID, e.Payload); err != nil {
			b.Fatal(err)
		}
		p := schema.Pack{Key: key, First: e.Seq, Count: 1, Writer: "w", Head: end, Body: append(e.AppendLine(nil), '\n')}
		b.append(p)
		single = append(single, p)
	}
	want, heads := bodyOf(single), headsOf(single)
	if err := b.archiver.One(b.Context(), key); err != nil {
		b.Fatal(err)
	}
	place := b.place(key)
	if place.Archived != place.Last || place.URI == "" || place.Last != schema.Seq(len(single)) {
		b.Fatalf("%s is not archived: %+v", s.Name, place)
	}
	offsets := lineOffsets(want)
	floors := map[string]schema.Seq{"hot": 0, "cold": place.Last, "half": place.Last / 2, "all but one": place.Last - 1,
		"one": 1}
	for how, floor := range floors {
		a := b.reader(cooled{b.tables, func(persister.Place) schema.Seq { return floor }})
		for after := schema.Seq(0); after <= place.Last; after++ {
			if after%steps(how, every, place.Last) != 0 {
				continue
			}
			if got := read(b, a, key, after, schema.MaxSeq, heads); !bytes.Equal(got, want[offsets[after]:]) {
				b.Fatalf("%s, %s, after %d: %d bytes, want %d", s.Name, how, after, len(got), len(want)-offsets[after])
			}
		}
		through := place.Last * 2 / 3
		if got := read(b, a, key, 3, through, heads); !bytes.Equal(got, want[offsets[min(3, through)]:offsets[through]]) {
			b.Fatalf("%s, %s, through %d: %d bytes", s.Name, how, through, len(got))
		}
	}
}

func (b *bench) run(w *persistertest.Writer, texts int) []schema.Pack {
	packs := []schema.Pack{w.Pack("", persistertest.Lifecycle(schema.StateRunning))}
	for ; texts > 0; texts -= 50 {
		packs = append(packs, w.Texts("", min(50, texts)))
	}
	packs = append(packs, w.Pack("", persistertest.Lifecycle(schema.StateDone)))
	b.append(packs...)
	return packs
}

func cold(p persister.Place) schema.Seq { return p.Archived }

// TestFollowUp: an archived run goes on, and is archived again: the new object holds all of it, also when
// its rows are gone, and the old object goes.
func TestFollowUp(t *testing.T) {
	store, base := openFolder(t)
	tables := cooled{openSQLite(t), cold}
	b := newBench(t, tables, store, base, func(c *blob.ArchiverConfig) { c.Tables = tables })
	w := persistertest.NewWriter(key, day)
	packs := b.run(w, 100)
	for round := range 3 {
		if err := b.archiver.One(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := b.objects(); len(got) != 1 || got[0] != blob.Name(key, day, w.Head.Last) {
			t.Fatalf("round %d: objects %q", round, got)
		}
		if got := read(t, b.archive, key, 0, schema.MaxSeq, nil); !bytes.Equal(got, bodyOf(packs)) {
			t.Fatalf("round %d: replay differs", round)
		}
		more := []schema.Pack{w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)), w.Texts("", 30)}
		b.append(more...)
		if got := read(t, b.archive, key, 40, schema.MaxSeq, nil); !bytes.Equal(got,
			bodyOf(append(packs, more...))[lineOffsets(bodyOf(packs))[40]:]) {
			t.Fatalf("round %d: replay of both differs", round)
		}
		packs = append(packs, more...)
		if err := b.archiver.One(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if len(b.objects()) != 1 || b.place(key).Archived == w.Head.Last {
			t.Fatalf("a run that goes on is archived: %q", b.objects())
		}
		end := w.Pack("", persistertest.Lifecycle(schema.StateError))
		b.append(end)
		packs = append(packs, end)
	}
}

// TestAway: an object that is away or damaged is an error, never the end of the run; what is in rows is
// given out all the same.
func TestAway(t *testing.T) {
	store, base := openFolder(t)
	tables := cooled{openSQLite(t), cold}
	b := newBench(t, tables, store, base, nil)
	w := persistertest.NewWriter(key, day)
	packs := b.run(w, 300)
	if err := b.archiver.One(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	more := []schema.Pack{w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)), w.Texts("", 30)}
	b.append(more...)
	failing := func(a *blob.Archive, after schema.Seq, want error) {
		t.Helper()
		var got error
		for _, err := range a.Packs(t.Context(), key, after, schema.MaxSeq) {
			got = err
		}
		if !errors.Is(got, want) {
			t.Fatalf("after %d: %v, want %v", after, got, want)
		}
	}
	none, err := blob.New(blob.Config{Tables: tables, Heads: tables})
	if err != nil {
		t.Fatal(err)
	}
	failing(none, 0, blob.ErrNoStore)
	name := b.objects()[0]
	if err := store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	failing(b.archive, 0, blob.ErrNotFound)
	failing(b.archive, 200, blob.ErrNotFound)
	if err := store.Put(t.Context(), name, bytes.NewReader([]byte("no object of ours, but long enough to hold a footer of sixty-four bytes and more"))); err != nil {
		t.Fatal(err)
	}
	failing(b.archive, 0, blob.ErrCorrupt)
	_ = packs
}

// TestUnknown: a run that is not there, is to be forgotten or has expired is an empty walk.
func TestUnknown(t *testing.T) {
	store, base := openFolder(t)
	tables, db := openFile(t)
	b := newBench(t, tables, store, base, nil)
	empty := func(what string, after schema.Seq) {
		t.Helper()
		if got := read(t, b.archive, key, after, schema.MaxSeq, nil); len(got) > 0 {
			t.Fatalf("%s: %d bytes", what, len(got))
		}
	}
	empty("unknown", 0)
	w := persistertest.NewWriter(key, day)
	packs := b.run(w, 60)
	if err := b.archiver.One(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`update agent_runs set deleted_at = '2026-01-01T00:00:00Z', floor_seq = ?`, int64(schema.MaxSeq))
	empty("to be forgotten", 0)
	empty("to be forgotten", 10)
	exec(`update agent_runs set deleted_at = null, expired_at = '2026-01-01T00:00:00Z', floor_seq = last_seq, expired_seq = last_seq,
		archived_at = null, archived_seq = 0, replay_uri = null`)
	exec(`delete from agent_run_events`)
	empty("expired", 0)
	empty("expired", 10)
	if err := b.archiver.One(t.Context(), key); err != nil || b.place(key).URI != "" {
		t.Fatalf("an expired run: %+v, %v", b.place(key), err)
	}

	// It goes on: what follows is kept, archived and read, from its first event on.
	more := []schema.Pack{w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)), w.Texts("", 20),
		w.Pack("", persistertest.Lifecycle(schema.StateDone))}
	b.append(more...)
	exec(`update agent_runs set expired_at = null`)
	expired := packs[len(packs)-1].Last()
	heads := append(make([]schema.Head, expired), headsOf(schemaSingles(more))...)
	for _, how := range []string{"rows", "object"} {
		if got := readFrom(t, b.archive, key, 0, expired+1, heads); !bytes.Equal(got, bodyOf(more)) {
			t.Fatalf("%s, from the beginning: %d bytes of %d", how, len(got), len(bodyOf(more)))
		}
		if got := read(t, b.archive, key, expired, schema.MaxSeq, heads); !bytes.Equal(got, bodyOf(more)) {
			t.Fatalf("%s: %d bytes of %d", how, len(got), len(bodyOf(more)))
		}
		if how == "rows" {
			if err := b.archiver.One(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			exec(`update agent_runs set floor_seq = archived_seq`)
			exec(`delete from agent_run_events`)
		}
	}
}

// schemaSingles returns the heads of events in the middle of packs those of the packs' ends, which are the
// same but for the id; texts move nothing else.
func schemaSingles(packs []schema.Pack) (out []schema.Pack) {
	for _, p := range packs {
		last := p.Last()
		for r, err := range p.Records(0) {
			if err != nil {
				panic(err)
			}
			e, err := r.Event()
			if err != nil {
				panic(err)
			}
			q := p
			q.Head = p.Head
			q.Head.LastID = e.ID
			_ = last
			out = append(out, q)
		}
	}
	return out
}
