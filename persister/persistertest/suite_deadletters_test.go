package persistertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
)

// deadLetterStore is what runDeadLetters tests of a store beside Store, with what deadletter.Redriver names.
type deadLetterStore interface {
	FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error)
	CountDeadLetters(ctx context.Context, q deadletter.Query) (map[string]int, error)
	DropDeadLetters(ctx context.Context, names []string) (int, error)
	NoteTries(ctx context.Context, failed []deadletter.FailedTry) error
}

// runDeadLetters tests the dead letters of a store, and deadletter.Redrive with it. refuse makes the store refuse
// lines that contain a text, until the function that it returns is called.
func runDeadLetters(t *testing.T, open func(t *testing.T) (store SuiteStore, refuse func(text string) (accept func()))) {
	for _, c := range []struct {
		name string
		test func(*deadLetterSuite)
	}{
		{"queries", (*deadLetterSuite).queries},
		{"pages", (*deadLetterSuite).pages},
		{"drop and tries", (*deadLetterSuite).dropAndTries},
		{"hostile letters", (*deadLetterSuite).hostileDeadLetters},
		{"redrive of what was refused", (*deadLetterSuite).redriveRefused},
		{"redrive of what is still bad", (*deadLetterSuite).redriveBad},
		{"redrive of messages", (*deadLetterSuite).redriveMessages},
		{"redrive of conflicts", (*deadLetterSuite).redriveConflicts},
		{"redrive after a crash", (*deadLetterSuite).redriveCrash},
		{"redrive of changed letters", (*deadLetterSuite).redriveChanged},
		{"transfer of what is refused", (*deadLetterSuite).transferRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, refuse := open(t)
			c.test(&deadLetterSuite{suite: suite{T: t, store: store}, deadLetters: store.(deadLetterStore),
				redriver: store.(deadletter.Redriver), refuse: refuse})
		})
	}
}

type deadLetterSuite struct {
	suite
	deadLetters deadLetterStore
	redriver    deadletter.Redriver
	refuse      func(text string) (accept func())
}

func (s *deadLetterSuite) putDeadLetters(deadLetters ...persister.DeadLetter) {
	s.Helper()
	if err := s.tables().PutDeadLetters(s.Context(), deadLetters); err != nil {
		s.Fatal(err)
	}
}

func (s *deadLetterSuite) query(q deadletter.Query) []deadletter.Stored {
	s.Helper()
	if q.Limit == 0 {
		q.Limit = many
	}
	got, err := s.deadLetters.FindDeadLetters(s.Context(), q)
	if err != nil {
		s.Fatal(err)
	}
	return got
}

func (s *deadLetterSuite) counts(q deadletter.Query, want map[string]int) {
	s.Helper()
	got, err := s.deadLetters.CountDeadLetters(s.Context(), q)
	if err != nil || !maps.Equal(got, want) {
		s.Fatalf("%v (%v), want %v", got, err, want)
	}
}

func deadLetter(stream string, position uint64, tenant, run, reason string) persister.DeadLetter {
	return persister.DeadLetter{Stream: stream, Position: position, Seq: 1, Key: schema.RunKey{Tenant: tenant, Run: run},
		Subject: "s", Body: []byte("body"), Reason: reason, Detail: "why"}
}

func (s *deadLetterSuite) queries() {
	before := time.Now().Add(-time.Minute)
	s.putDeadLetters(deadLetter("A", 1, "x", "r1", "refused"), deadLetter("A", 2, "x", "r2", "conflict"),
		deadLetter("B", 3, "y", "r1", "refused"), deadLetter("B", 18446744073709551615, "", "", "bad_message"))
	positions := func(q deadletter.Query, want ...uint64) {
		s.Helper()
		var got []uint64
		for _, l := range s.query(q) {
			got = append(got, l.Position)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			s.Fatalf("%+v gives %d, want %d", q, got, want)
		}
		n := 0
		counts, err := s.deadLetters.CountDeadLetters(s.Context(), q)
		for _, c := range counts {
			n += c
		}
		if err != nil || n != len(want) {
			s.Fatalf("%+v counts %d, want %d (%v)", q, n, len(want), err)
		}
	}
	positions(deadletter.Query{}, 1, 2, 3, 18446744073709551615)
	positions(deadletter.Query{Tenant: "x"}, 1, 2)
	positions(deadletter.Query{Run: "r1"}, 1, 3)
	positions(deadletter.Query{Tenant: "y", Run: "r1"}, 3)
	positions(deadletter.Query{Stream: "B"}, 3, 18446744073709551615)
	positions(deadletter.Query{Reason: "refused"}, 1, 3)
	positions(deadletter.Query{Reason: "refused' or 1=1 --"})
	positions(deadletter.Query{Since: before}, 1, 2, 3, 18446744073709551615)
	positions(deadletter.Query{Before: before})
	positions(deadletter.Query{Before: time.Now().Add(time.Minute), Stream: "A"}, 1, 2)
	positions(deadletter.Query{Since: time.Now().Add(time.Minute)})
	l := deadLetter("A", 2, "x", "r2", "conflict")
	name := fmt.Sprintf("%x", l.ID())
	for n := 3; n <= 64; n++ {
		positions(deadletter.Query{Prefix: name[:n]}, 2)
	}
	positions(deadletter.Query{Names: []string{name, strings.Repeat("0", 64)}}, 2)
	positions(deadletter.Query{Names: []string{}})
	for _, q := range []deadletter.Query{{Prefix: "xyz"}, {Prefix: name + "0"}, {Names: []string{"ab"}},
		{Names: []string{strings.Repeat("g", 64)}}} {
		if _, err := s.deadLetters.FindDeadLetters(s.Context(), q); !errors.Is(err, deadletter.ErrName) {
			s.Fatalf("%+v: %v", q, err)
		}
	}
	if got := s.query(deadletter.Query{Prefix: name}); got[0].Body != nil || got[0].Size != 4 || got[0].Name != name ||
		got[0].Detail != "why" ||
		got[0].Since.Before(before) || !got[0].Tried.IsZero() {
		s.Fatalf("%+v", got)
	}
	s.counts(deadletter.Query{}, map[string]int{"refused": 2, "conflict": 1, "bad_message": 1})
}

func (s *deadLetterSuite) pages() {
	for i := range 9 { // in several transactions, so that times differ and are the same
		var some []persister.DeadLetter
		for j := range 1 + i*3 {
			// of one to four digits
			some = append(some, deadLetter([]string{"A", "B"}[j%2], uint64(j*100+i), "x", "r", "refused"))
		}
		s.putDeadLetters(some...)
	}
	want := s.query(deadletter.Query{})
	if len(want) != 9+3*36 {
		s.Fatalf("%d letters", len(want))
	}
	for i := range want[1:] {
		if want[i].Since.Before(want[i+1].Since) {
			s.Fatalf("letter %d is older than the next", i)
		}
	}
	var got []deadletter.Stored
	q := deadletter.Query{Limit: 7}
	for {
		page := s.query(q)
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		q.After = &page[len(page)-1]
		// What follows the page's end is found although its end was removed.
		if _, err := s.deadLetters.DropDeadLetters(s.Context(), []string{q.After.Name}); err != nil {
			s.Fatal(err)
		}
	}
	if len(got) != len(want) || !slices.EqualFunc(got, want,
		func(a, b deadletter.Stored) bool { return a.Name == b.Name }) {
		s.Fatalf("pages give %d letters of %d, or another order", len(got), len(want))
	}
}

func (s *deadLetterSuite) dropAndTries() {
	s.putDeadLetters(deadLetter("A", 1, "x", "r", "refused"), deadLetter("A", 2, "x", "r", "refused"))
	got := s.query(deadletter.Query{})
	for range 2 {
		if err := s.deadLetters.NoteTries(s.Context(),
			[]deadletter.FailedTry{{Name: got[0].Name, Error: "again\x00\xff"},
				{Name: strings.Repeat("a", 64), Error: "nobody"}}); err != nil {
			s.Fatal(err)
		}
	}
	l := s.query(deadletter.Query{Prefix: got[0].Name})[0]
	if l.Tries != 2 || l.Error != persister.Text("again\x00\xff") || time.Since(l.Tried) > time.Minute ||
		!l.Since.Equal(got[0].Since) || l.Detail != "why" {
		s.Fatalf("%+v", l)
	}
	if other := s.query(deadletter.Query{Prefix: got[1].Name})[0]; other.Tries != 0 || other.Error != "" {
		s.Fatalf("%+v", other)
	}
	for _, want := range []int{1, 0} {
		if n, err := s.deadLetters.DropDeadLetters(s.Context(),
			[]string{got[0].Name, strings.Repeat("a", 64)}); err != nil || n != want {
			s.Fatalf("dropped %d, want %d (%v)", n, want, err)
		}
	}
	s.counts(deadletter.Query{}, map[string]int{"refused": 1})
	if _, err := s.deadLetters.DropDeadLetters(s.Context(), []string{"a"}); !errors.Is(err, deadletter.ErrName) {
		s.Fatal(err)
	}
	if err := s.deadLetters.NoteTries(s.Context(), nil); err != nil {
		s.Fatal(err)
	}
}

func (s *deadLetterSuite) hostileDeadLetters() {
	big := bytes.Repeat([]byte("\x00\xff1234567"), 1<<20/9)
	deadLetters := []persister.DeadLetter{
		{Stream: "S", Position: 1, Body: big, Reason: "bad_message",
			Header: map[string][]string{"H": {strings.Repeat("h", 60<<10), "\xff\x00", ""}}},
		{Stream: "S", Position: 2, Reason: "bad_message", Subject: "\xff\x00"},
	}
	s.putDeadLetters(deadLetters...)
	got := s.query(deadletter.Query{Bodies: true})
	if len(got) != 2 || got[0].Body == nil || len(got[0].Body) != 0 || !bytes.Equal(got[1].Body, big) ||
		got[1].Size != len(big) ||
		!bytes.Equal(got[1].HeaderBytes(), deadLetters[0].HeaderBytes()) {
		s.Fatalf("%d letters, %d bytes", len(got), len(got[1].Body))
	}
}
