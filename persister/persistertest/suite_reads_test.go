package persistertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"agentstream/persister"
	"agentstream/schema"
)

// cursors reads from every position through every other: state and open messages are those of the writer there.
func (s *suite) cursors() {
	w := NewWriter(key, day)
	start := Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`)
	end := Event(schema.TypeMessageEnd, `{"message_id":"m"}`)
	text := Event(schema.TypeTextDelta, `{"text":"t"}`)
	var packs []schema.Pack
	put := func(child string, events ...schema.Event) {
		for _, e := range events {
			packs = append(packs, w.Pack(child, e))
		}
	}
	put("", Lifecycle(schema.StatePlanning), Lifecycle(schema.StateRunning), start, text)
	put("kid", start, text)
	put("", text, end, start)
	put("kid", end, start, Lifecycle(schema.StateError))
	put("", text, Lifecycle(schema.StateDone))
	put("", Event(schema.TypeCommandMessage, `{"text":"go on"}`), text, Lifecycle(schema.StateRunning), start, text)
	s.append(packs...)
	last := w.Head.Last
	for after := schema.Seq(0); after <= last+1; after++ {
		for through := after; through <= last+1; through++ {
			var want []byte
			for _, p := range packs[min(after, last):min(through, last)] {
				want = append(want, p.Body...)
			}
			got, body := s.read(key, after, through)
			if !bytes.Equal(body, want) {
				s.Fatalf("after %d through %d: %s", after, through, difference(body, want))
			}
			for _, p := range got {
				head := headOf(packs[p.Last()-1])
				head.Lane = schema.Lane{}
				sameHead(s.T, p.Head, head)
			}
		}
	}
}

func (s *suite) holes() {
	w := NewWriter(key, day)
	a, b, c := w.Texts("", 5), w.Texts("", 5), w.Texts("k", 5)
	s.append(c)
	s.same(key) // nothing: the beginning is missing
	s.head(key, "k", headOf(c))
	if packs, _ := s.read(key, 10, all); len(packs) != 1 {
		s.Fatal("what follows the cursor without a hole is not handed out")
	}
	s.append(a)
	s.same(key, a)
	if packs, _ := s.read(key, 7, all); len(packs) != 0 {
		s.Fatal("a walk that begins in a hole goes past it")
	}
	s.append(b)
	s.same(key, a, b, c)
}

// tenants have runs with the same names, and see only their own.
func (s *suite) tenants() {
	x, y := schema.RunKey{Tenant: "x", Run: "same"}, schema.RunKey{Tenant: "y", Run: "same"}
	wx, wy := NewWriter(x, day), NewWriter(y, day)
	wx.Lanes[""] = schema.Lane{Owner: "ox", Epoch: 3}
	px, py := wx.Texts("", 3), wy.Texts("k", 5)
	s.result(s.append(px, py), 8, 0, 0)
	s.same(x, px)
	s.same(y, py)
	s.head(x, "", headOf(px))
	s.head(y, "", headOf(py))
	s.head(schema.RunKey{Tenant: "z", Run: "same"}, "", schema.Head{})
	s.same(schema.RunKey{Tenant: "z", Run: "same"})
	s.same(schema.RunKey{Tenant: "x", Run: "other"})
}

func (s *suite) heads() {
	w := NewWriter(key, day)
	start := Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`)
	for _, p := range []schema.Pack{
		w.Texts("", 1),
		w.Pack("", Lifecycle(schema.StateRunning), start),
		w.Pack("kid-1", start),
		w.Pack("kid_2", start),
		w.Pack("kid-1", Event(schema.TypeMessageEnd, `{"message_id":"m"}`)),
		w.Pack("", Lifecycle(schema.StateAborted)),
	} {
		s.append(p)
		s.head(key, "", headOf(p))
		s.head(key, "nobody", headOf(p))
	}
}

func (s *suite) lanes() {
	w := NewWriter(key, day)
	w.Lanes[""] = schema.Lane{Owner: "one", Epoch: 1}
	a := w.Texts("", 1)
	w.Lanes["kid"] = schema.Lane{Owner: "k", Epoch: 18446744073709551615}
	b := w.Texts("kid", 1)
	w.Lanes[""] = schema.Lane{Owner: "two", Epoch: 2}
	c := w.Texts("", 1)
	w.Lanes[""] = schema.Lane{Owner: "ten", Epoch: 10}
	d := w.Texts("", 1)
	s.append(c, a, b) // not in order: the higher epoch stays
	owner := func(lane string, want schema.Lane) {
		s.Helper()
		h, err := s.store.Head(s.Context(), key, lane)
		if err != nil {
			s.Fatal(err)
		}
		if h.Lane != want {
			s.Fatalf("lane %q is of %+v, want %+v", lane, h.Lane, want)
		}
	}
	owner("", schema.Lane{Owner: "two", Epoch: 2})
	s.append(d)
	s.append(a)
	owner("", schema.Lane{Owner: "ten", Epoch: 10})
	owner("kid", schema.Lane{Owner: "k", Epoch: 18446744073709551615})
	owner("none", schema.Lane{})
}

// midnight: the writer's clock reaches the next day, the run's day does not change.
func (s *suite) midnight() {
	w := NewWriter(key, "20260228")
	var packs []schema.Pack
	for range 5 {
		packs = append(packs, w.Texts("", 40)) // one second an event, beginning at 23:59
	}
	if !bytes.Contains(packs[0].Body, []byte("2026-02-28T23:59")) ||
		!bytes.Contains(packs[4].Body, []byte("2026-03-01T00:0")) {
		s.Fatal("the run does not cross midnight")
	}
	next := NewWriter(schema.RunKey{Tenant: key.Tenant, Run: "run_2"}, "20260301").Texts("", 1)
	s.append(append(packs, next)...)
	s.same(key, packs...)
	s.result(s.append(packs...), 0, 200, 0)
}

func (s *suite) deadLetters() {
	deadLetters := []persister.DeadLetter{
		{Stream: "AGENT_1", Position: 18446744073709551615, Seq: 7, Key: key, Subject: "agent.1.acme.run_1.-",
			Header: map[string][]string{"Agent-Seq": {"7"}, "X": {"a", "b \xff\x00"}}, Body: []byte("\x00\xff{"),
			Reason: persister.ReasonBadEvent, Detail: "bad \xff\x00 é"},
		{Stream: "AGENT_1", Position: 9, Subject: "agent.1.\xff", Body: nil, Reason: persister.ReasonBadMessage, Detail: ""},
		{Stream: "AGENT_1", Position: 9, Subject: "agent.1.\xff", Body: []byte("other content at the same place"),
			Reason: persister.ReasonBadMessage},
	}
	for range 3 {
		if err := s.tables().PutDeadLetters(s.Context(), deadLetters); err != nil {
			s.Fatal(err)
		}
	}
	if err := s.tables().PutDeadLetters(s.Context(), slices.Concat(deadLetters, deadLetters)); err != nil {
		s.Fatal(err)
	}
	got, err := s.store.DeadLetters(s.Context(), many)
	if err != nil {
		s.Fatal(err)
	}
	if len(got) != len(deadLetters) {
		s.Fatalf("%d dead letters, want %d", len(got), len(deadLetters))
	}
	for _, want := range deadLetters {
		i := slices.IndexFunc(got, func(l persister.DeadLetter) bool { return bytes.Equal(l.Body, want.Body) })
		if i < 0 {
			s.Fatalf("no letter has the body %q", want.Body)
		}
		l := got[i]
		if l.Stream != want.Stream || l.Position != want.Position || l.Seq != want.Seq || l.Key != want.Key ||
			l.Reason != want.Reason ||
			persister.Text(l.Subject) != persister.Text(want.Subject) ||
			persister.Text(l.Detail) != persister.Text(want.Detail) ||
			!bytes.Equal(l.HeaderBytes(), want.HeaderBytes()) {
			s.Fatalf("letter\n got %+v\nwant %+v", l, want)
		}
	}
	if some, err := s.store.DeadLetters(s.Context(), 1); err != nil || len(some) != 1 {
		s.Fatalf("limit 1 gives %d, %v", len(some), err)
	}
}

// allOrNothing: an append that fails in the middle leaves neither rows nor a moved head.
func (s *suite) allOrNothing() {
	w := NewWriter(key, day)
	a, b := w.Texts("", 3), w.Texts("", 3)
	s.append(a)
	chunks, err := persister.Chunks(b)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.tables().Append(ctx, chunks); err == nil {
		s.Fatal("an append on an ended context succeeds")
	} else if errors.Is(err, persister.ErrPoison) {
		s.Fatalf("the end of a context is taken for poison: %v", err)
	}
	s.same(key, a)
	s.head(key, "", headOf(a))
	s.append(b)
	s.same(key, a, b)
}

func (s *suite) concurrentRuns() {
	var wg sync.WaitGroup
	written := make([][]schema.Pack, 8)
	for i := range written {
		wg.Go(func() {
			w := NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + strconv.Itoa(i)}, day)
			for range 10 {
				p := w.Texts("", 20)
				written[i] = append(written[i], p)
				s.appendFrom(p)
			}
		})
	}
	wg.Wait()
	for _, packs := range written {
		s.same(packs[0].Key, packs...)
		s.head(packs[0].Key, "", headOf(packs[len(packs)-1]))
	}
}

// concurrentSame: several persisters store the same packs, each in its own order.
func (s *suite) concurrentSame() {
	var packs []schema.Pack
	for i := range 6 {
		w := NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + strconv.Itoa(i)}, day)
		packs = append(packs, w.Texts("", 15), w.Texts("k", 15))
	}
	var wg sync.WaitGroup
	inserted := make([]int, 4)
	for i := range inserted {
		wg.Go(func() {
			mine := slices.Clone(packs)
			if i%2 == 1 {
				slices.Reverse(mine)
			}
			for part := range slices.Chunk(mine, 1+i) {
				res := s.appendFrom(part...)
				inserted[i] += res.Inserted
				if len(res.Conflicts) > 0 {
					s.Errorf("the same content is a conflict: %+v", res.Conflicts)
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range inserted {
		sum += n
	}
	if sum != len(packs)*15 {
		s.Fatalf("%d rows were inserted, want %d", sum, len(packs)*15)
	}
	for pair := range slices.Chunk(packs, 2) {
		s.same(pair[0].Key, pair...)
	}
}

// concurrentDays: several stores create partitions at the same time.
func (s *suite) concurrentDays() {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for d := range 5 {
				w := NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d_%d", i, d)}, fmt.Sprintf("202511%02d", d+1))
				s.appendFrom(w.Texts("", 2))
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		for d := range 5 {
			if _, body := s.read(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d_%d", i, d)}, 0,
				all); bytes.Count(body, []byte("\n")) != 2 {
				s.Fatalf("run %d of day %d is not whole", i, d)
			}
		}
	}
}

// appendMixed appends packs from several goroutines, from each twice, shuffled, and up to most at a time.
func (s *suite) appendMixed(sides, most int, packs ...schema.Pack) {
	var wg sync.WaitGroup
	for range sides {
		mixed := slices.Concat(packs, packs)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		wg.Go(func() {
			for part := range slices.Chunk(mixed, 1+rand.IntN(most)) {
				s.appendFrom(part...)
			}
		})
	}
	wg.Wait()
}

// appendFrom is append for goroutines other than the test's.
func (s *suite) appendFrom(packs ...schema.Pack) persister.Result {
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		s.Error(err)
		return persister.Result{}
	}
	res, err := s.tables().Append(s.Context(), chunks)
	if err != nil {
		s.Error(err)
	}
	return res
}
