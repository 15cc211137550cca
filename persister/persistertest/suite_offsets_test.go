package persistertest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// place returns an offset of the suite's log.
func place(stream string, position uint64) persister.Offset {
	if position == 0 {
		return persister.Offset{Stream: stream}
	}
	return persister.Offset{Stream: stream, Identity: "made today", Position: position}
}

// moving returns a transfer of packs that moves an offset.
func (s *suite) moving(from, to persister.Offset, packs ...schema.Pack) *persister.Transfer {
	s.Helper()
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		s.Fatal(err)
	}
	return &persister.Transfer{Chunks: chunks, From: from, To: to, Owner: "p1"}
}

func (s *suite) transfer(t *persister.Transfer) persister.Result {
	s.Helper()
	res, err := s.store.Transfer(s.Context(), t)
	if err != nil {
		s.Fatal(err)
	}
	return res
}

// stored returns the offsets by their streams.
func (s *suite) stored() map[string]persister.StoredOffset {
	s.Helper()
	rows, err := s.store.Offsets(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	out := make(map[string]persister.StoredOffset)
	for _, o := range rows {
		out[o.Stream] = o
	}
	if len(out) != len(rows) {
		s.Fatalf("%d offsets of %d streams", len(rows), len(out))
	}
	return out
}

// at fails unless these are the offsets.
func (s *suite) at(want ...persister.Offset) {
	s.Helper()
	got := s.stored()
	if len(got) != len(want) {
		s.Fatalf("offsets are %+v, want %+v", got, want)
	}
	for _, w := range want {
		if o := got[w.Stream].Offset; !o.Same(w) || !o.StoredAt.Equal(w.StoredAt) ||
			o.StoredAt.IsZero() != w.StoredAt.IsZero() {
			s.Fatalf("offset is %+v, want %+v", o, w)
		}
	}
}

// bodies fails unless these are the bodies of the dead letters.
func (s *suite) bodies(want ...string) {
	s.Helper()
	deadLetters, err := s.store.DeadLetters(s.Context(), many)
	if err != nil {
		s.Fatal(err)
	}
	got := make(map[string]bool)
	for _, l := range deadLetters {
		got[string(l.Body)] = true
	}
	for _, body := range want {
		if !got[body] {
			s.Fatalf("no dead letter %q", body)
		}
	}
	if len(deadLetters) != len(want) {
		s.Fatalf("%d dead letters, want %d", len(deadLetters), len(want))
	}
}

// offsets begin, move, and are independent of each other. Times are kept to the nanosecond.
func (s *suite) offsets() {
	s.at()
	w, v := NewWriter(key, day), NewWriter(schema.RunKey{Tenant: "globex", Run: "run_2"}, day)
	a, b, c := w.Texts("", 12), w.Texts("", 3), v.Texts("", 2)
	one, two, other := place("L_0", 1), place("L_0", 18446744073709551615), place("L_1", 7)
	one.StoredAt = time.Date(2026, 2, 28, 23, 59, 1, 123456789, time.UTC)
	other.StoredAt = time.Date(1969, 12, 31, 0, 0, 0, 1, time.UTC)
	s.result(s.transfer(s.moving(place("L_0", 0), one, a)), 12, 0, 0)
	s.at(one)
	before := s.stored()["L_0"]
	s.pause(50 * time.Millisecond)
	if later := s.stored()["L_0"]; later.Owner != "p1" || later.Idle < before.Idle+30*time.Millisecond ||
		later.Idle > time.Hour {
		s.Fatalf("%+v, before that %+v", later, before)
	}
	t := s.moving(one, two, b)
	t.Owner = "p2"
	s.result(s.transfer(t), 3, 0, 0)
	s.at(two)
	s.result(s.transfer(s.moving(place("L_1", 0), other, c)), 2, 0, 0)
	s.at(two, other)
	s.pause(10 * time.Millisecond)
	if after := s.stored(); after["L_0"].Owner != "p2" || after["L_1"].Owner != "p1" || after["L_0"].Idle <= 0 {
		s.Fatalf("%+v", after)
	}
	anew := persister.Offset{Stream: "L_0", Identity: "made tomorrow", Position: 3}
	s.result(s.transfer(s.moving(two, anew, a)), 0, 12, 0)
	s.at(anew, other)
	s.same(key, a, b)
	s.same(c.Key, c)
	s.head(key, "", headOf(b))
}

// overtaken: a transfer from another offset than the stored one writes nothing at all.
func (s *suite) overtaken() {
	w := NewWriter(key, day)
	a, b := w.Texts("", 12), w.Texts("", 12)
	late := NewWriter(schema.RunKey{Tenant: "globex", Run: "late"}, day).Texts("kid", 30)
	one, two := place("L_0", 5), place("L_0", 9)
	anew := one
	anew.Identity = "made tomorrow"
	refused := func(from, to persister.Offset, packs ...schema.Pack) {
		s.Helper()
		t := s.moving(from, to, packs...)
		t.DeadLetters = []persister.DeadLetter{deadLetter(to.Stream, 6, "acme", "run_1", persister.ReasonBadEvent)}
		if res, err := s.store.Transfer(s.Context(), t); !errors.Is(err, persister.ErrOvertaken) ||
			errors.Is(err, persister.ErrPoison) || res.Inserted != 0 {
			s.Fatalf("from %+v: %+v, %v", from, res, err)
		}
		s.bodies()
		s.same(late.Key)
		s.head(late.Key, "kid", schema.Head{})
	}
	refused(one, two, a, late) // nothing is stored of the stream
	s.at()
	s.same(key)
	s.transfer(s.moving(place("L_0", 0), one, a))
	for _, from := range []persister.Offset{place("L_0", 0), place("L_0", 4), place("L_0", 6), two, anew} {
		refused(from, two, b, late)
		refused(from, two)
		s.at(one)
		s.head(key, "", headOf(a))
	}
	refused(place("L_1", 5), place("L_1", 9), b, late) // another stream's
	s.transfer(s.moving(one, two, b))
	refused(one, two, b, late) // the same once more
	s.at(two)
	s.same(key, a, b)
	s.head(key, "", headOf(b))
}

// transferAlone: dead letters and offsets, each without the other, without rows, and neither.
func (s *suite) transferAlone() {
	one, two := place("L_0", 5), place("L_0", 9)
	bad := deadLetter("L_0", 6, "acme", "run_1", persister.ReasonBadEvent)
	s.result(s.transfer(&persister.Transfer{}), 0, 0, 0)
	s.at()
	s.result(s.transfer(s.moving(place("L_0", 0), one)), 0, 0, 0)
	s.at(one)
	s.bodies()
	t := s.moving(one, two)
	t.DeadLetters = []persister.DeadLetter{bad}
	s.transfer(t)
	s.at(two)
	s.bodies("body")
	bad.Body = []byte("alone")
	s.transfer(&persister.Transfer{DeadLetters: []persister.DeadLetter{bad}, From: one}) // nothing to compare
	s.at(two)
	s.bodies("body", "alone")
	w := NewWriter(key, day)
	a := w.Texts("", 3)
	chunks, err := persister.Chunks(a)
	if err != nil {
		s.Fatal(err)
	}
	s.result(s.transfer(&persister.Transfer{Chunks: chunks}), 3, 0, 0)
	s.at(two)
	s.same(key, a)
}

// transferConflicts: a row with another content becomes a dead letter in the same transaction. Append leaves that to
// its caller.
func (s *suite) transferConflicts() {
	w, forger := NewWriter(key, day), NewWriter(key, day)
	a, b := w.Texts("", 12), w.Texts("", 12)
	forged := forger.Pack("", Event(schema.TypeTextDelta, `{"text":"other"}`)) // seq 1 again
	s.append(a)
	s.result(s.append(forged), 0, 0, 1)
	s.bodies()
	t := s.moving(place("L_0", 0), place("L_0", 3), forged, b)
	t.DeadLetters = []persister.DeadLetter{deadLetter("L_0", 2, "acme", "run_1", persister.ReasonBadEvent)}
	s.result(s.transfer(t), 12, 0, 1)
	if len(t.DeadLetters) != 1 {
		s.Fatalf("the transfer has %d letters now", len(t.DeadLetters))
	}
	s.bodies("body", string(line(forged, 0)))
	s.at(place("L_0", 3))
	s.same(key, a, b)
	s.result(s.transfer(s.moving(place("L_0", 3), place("L_0", 4), forged)), 0, 0, 1)
	s.bodies("body", string(line(forged, 0)))
	deadLetters, err := s.store.DeadLetters(s.Context(), many)
	if err != nil {
		s.Fatal(err)
	}
	for _, l := range deadLetters {
		if string(l.Body) != "body" && (l.Reason != persister.ReasonConflict || l.Key != key || l.Seq != 1 ||
			l.Detail == "" || len(l.Header) == 0) {
			s.Fatalf("%+v", l)
		}
	}
}

// transferOtherDay: rows are arranged again when their run has another day, and the offset moves once.
func (s *suite) transferOtherDay() {
	w, other := NewWriter(key, day), NewWriter(key, "20260301")
	a, b, forged := w.Texts("", 2), w.Texts("", 12), other.Texts("", 1)
	s.append(a)
	s.result(s.transfer(s.moving(place("L_0", 0), place("L_0", 1), forged)), 0, 0, 1)
	s.at(place("L_0", 1))
	s.bodies(string(line(forged, 0)))
	s.result(s.transfer(s.moving(place("L_0", 1), place("L_0", 3), forged, b)), 12, 0, 1)
	s.at(place("L_0", 3))
	s.bodies(string(line(forged, 0)))
	s.same(key, a, b)
}

// transferEnded: what is not committed leaves nothing.
func (s *suite) transferEnded() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	t := s.moving(place("L_0", 0), place("L_0", 1), NewWriter(key, day).Texts("", 12))
	t.DeadLetters = []persister.DeadLetter{deadLetter("L_0", 1, "acme", "run_1", persister.ReasonBadEvent)}
	if _, err := s.store.Transfer(ctx, t); err == nil || errors.Is(err, persister.ErrOvertaken) ||
		errors.Is(err, persister.ErrPoison) {
		s.Fatalf("a transfer on an ended context: %v", err)
	}
	s.at()
	s.bodies()
	s.same(key)
	s.result(s.transfer(t), 12, 0, 0)
	s.at(place("L_0", 1))
}

// concurrentTransfers: several persisters read the same messages from the same offset. One of them stores them.
func (s *suite) concurrentTransfers() {
	const persisters, steps = 8, 12
	writers := make([]*Writer, 5)
	written := make([][]schema.Pack, len(writers))
	for i := range writers {
		writers[i] = NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + strconv.Itoa(i)}, day)
	}
	rows, inserted, repeated := 0, 0, 0
	for step := range uint64(steps) {
		var packs []schema.Pack
		for i, w := range writers {
			p := w.Texts("", 1+int(step)%4*5)
			packs, written[i] = append(packs, p), append(written[i], p)
			rows += p.Count
		}
		var wg sync.WaitGroup
		results, errs := make([]persister.Result, persisters), make([]error, persisters)
		for i := range persisters {
			t := s.moving(place("L_0", step), place("L_0", step+1), packs...)
			wg.Go(func() { results[i], errs[i] = s.store.Transfer(s.Context(), t) })
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
				inserted, repeated = inserted+results[i].Inserted, repeated+results[i].Repeated
			case !errors.Is(err, persister.ErrOvertaken):
				s.Fatal(err)
			}
		}
		if won != 1 {
			s.Fatalf("step %d: %d transfers were taken", step, won)
		}
		s.at(place("L_0", step+1))
	}
	if inserted != rows || repeated != 0 {
		s.Fatalf("%d rows of %d were inserted, %d were there", inserted, rows, repeated)
	}
	for _, packs := range written {
		s.same(packs[0].Key, packs...)
		s.head(packs[0].Key, "", headOf(packs[len(packs)-1]))
	}
}

// transferRefused: when a row is refused nothing moves, and the offset moves without it.
func (s *deadLetterSuite) transferRefused() {
	accept := s.refuse("POISON")
	defer accept()
	w := NewWriter(key, day)
	good := w.Texts("", 12)
	bad := w.Pack("", Event(schema.TypeTextDelta, `{"text":"POISON"}`))
	for _, packs := range [][]schema.Pack{{good, bad}, {bad}} {
		t := s.moving(place("L_0", 0), place("L_0", 2), packs...)
		t.DeadLetters = []persister.DeadLetter{deadLetter("L_0", 1, "acme", "run_1", persister.ReasonBadEvent)}
		if _, err := s.store.Transfer(s.Context(), t); !errors.Is(err, persister.ErrPoison) ||
			errors.Is(err, persister.ErrOvertaken) {
			s.Fatal(err)
		}
		s.at()
		s.bodies()
		s.same(key)
		s.head(key, "", schema.Head{})
	}
	s.transfer(s.moving(place("L_0", 0), place("L_0", 1), good))
	t := s.moving(place("L_0", 1), place("L_0", 2))
	t.DeadLetters = []persister.DeadLetter{ofLine(bad, 0, line(bad, 0), persister.ReasonRefused)}
	s.transfer(t)
	s.at(place("L_0", 2))
	s.bodies(string(line(bad, 0)))
	s.same(key, good)
}
