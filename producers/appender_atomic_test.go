package producers_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// staged is a log that others write to, or that fails, at a place of the test's choice.
type staged struct {
	*memory.Log
	before func(n int) error // asked before the n-th call, from 1; its error is the answer
	n      int
}

func (s *staged) step() error {
	s.n++
	if s.before == nil {
		return nil
	}
	return s.before(s.n)
}

func (s *staged) Head(ctx context.Context, k schema.RunKey, lane string) (schema.Head, error) {
	if err := s.step(); err != nil {
		return schema.Head{}, err
	}
	return s.Log.Head(ctx, k, lane)
}

func (s *staged) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if err := s.step(); err != nil {
		return 0, err
	}
	return s.Log.Append(ctx, p, after)
}

func (s *staged) Since(ctx context.Context, k schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	if err := s.step(); err != nil {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, err) }
	}
	return s.Log.Since(ctx, k, after)
}

// other appends to the run beside whoever is under way.
func (s *staged) other(t *testing.T, events ...schema.Event) {
	t.Helper()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: s.Log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(context.Background(), key, events, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
}

// texts are what the run holds of one writer, in order.
func (s *staged) texts(t *testing.T, who string) (all []string) {
	t.Helper()
	for p, err := range s.Log.Since(context.Background(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			if _, rest, ok := strings.Cut(string(r.Payload()), `"`+who+":"); ok {
				all = append(all, strings.TrimSuffix(rest, `"}`))
			}
		}
	}
	return all
}

// isPrefix reports whether got is 0, 1, 2 …, without a gap.
func isPrefix(got []string) bool {
	for i, s := range got {
		if s != fmt.Sprint(i) {
			return false
		}
	}
	return true
}

func lifecycle(state string) schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Payload: fmt.Appendf(nil, `{"state":%q}`, state)}
}

func appender(t *testing.T, log producers.Log, keys producers.Keys) *producers.Appender {
	t.Helper()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A batch that fits one pack is stored whole or not at all, also when it becomes impossible between the check
// and the compare-and-set. Its second event brings a number that was right.
func TestOnePackIsWholeWhateverComesBetween(t *testing.T) {
	log := &staged{Log: memory.New()}
	events := batch("w", 0, 3)
	events[1].Seq = 2
	log.before = func(n int) error {
		if n == 2 { // the head has been read, the pack is built
			log.other(t, text("", "o:0"))
		}
		return nil
	}
	_, err := appender(t, log, nil).Append(t.Context(), key, events, producers.AppendOptions{})
	at := new(schema.BatchError)
	if !errors.Is(err, schema.ErrSeqMismatch) || !errors.As(err, &at) || at.Line != 2 {
		t.Errorf("%v", err)
	}
	if got := log.texts(t, "w"); len(got) != 0 {
		t.Errorf("stored %v of a batch that was refused", got)
	}
}

// Whole refuses what is not one pack, and stores nothing of it.
func TestWholeIsOnePack(t *testing.T) {
	large := batch("w", 0, 4)
	for i := range large {
		large[i].Payload = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", schema.MaxPackBytes/4))
	}
	for name, c := range map[string]struct {
		events []schema.Event
		want   error
	}{
		"one pack": {batch("w", 0, schema.MaxPackEvents), nil},
		"a lane":   {batch("w", 0, 5, "kid"), nil},
		"too many": {batch("w", 0, schema.MaxPackEvents+1), schema.ErrTooLarge},
		"lanes":    {batch("w", 0, 2, "", "kid"), schema.ErrTooLarge},
		"bytes":    {large, schema.ErrTooLarge},
	} {
		log := memory.New()
		_, err := appender(t, log, nil).Append(t.Context(), key, c.events, producers.AppendOptions{Whole: true})
		head, _ := log.Head(t.Context(), key, "")
		if !errors.Is(err, c.want) || (head.Last == 0) != (c.want != nil) {
			t.Errorf("%s: %v, %d stored", name, err, head.Last)
		}
	}
}

// Others write between the packs of a batch: its events keep their order and are all there.
func TestOthersBetweenPacks(t *testing.T) {
	log := &staged{Log: memory.New()}
	log.before = func(n int) error {
		if n%7 == 0 && n < 100 {
			log.other(t, text("", fmt.Sprint("o:", n/7-1)))
		}
		return nil
	}
	r, err := appender(t, log, nil).Append(t.Context(), key, batch("w", 0, 2500, "", "", "", "kid"),
		producers.AppendOptions{})
	if err != nil || r.First != 1 || r.Last != 2514 {
		t.Fatalf("%+v %v", r, err)
	}
	if got := log.texts(t, "w"); len(got) != 2500 || !isPrefix(got) {
		t.Errorf("%d events, in order %v", len(got), isPrefix(got))
	}
	if got := log.texts(t, "o"); len(got) != 14 || !isPrefix(got) {
		t.Errorf("others: %v", got)
	}
}

// Another writer ends the run between two packs: the answer says how much is stored, a repeat says the same, and
// once the run goes on a repeat stores the rest.
func TestRunEndsBetweenPacks(t *testing.T) {
	log := &staged{Log: memory.New()}
	keys := new(memoryKeys)
	log.before = func(n int) error {
		if n == 3 { // head, first pack, second pack
			log.other(t, lifecycle("done"))
		}
		return nil
	}
	events, opt := batch("w", 0, 2500), producers.AppendOptions{IdempotencyKey: "k"}
	for try, a := range []*producers.Appender{appender(t, log, keys), appender(t, log, keys)} {
		_, err := a.Append(t.Context(), key, events, opt)
		part, at := new(producers.PartialError), new(schema.BatchError)
		if !errors.Is(err, schema.ErrEnded) || errors.Is(err, schema.ErrUnanswered) || !errors.As(err, &part) ||
			!errors.As(err, &at) {
			t.Fatalf("try %d: %v", try, err)
		}
		if part.Stored != 1024 || part.Of != 2500 || at.Line != 1025 || len(log.texts(t, "w")) != 1024 {
			t.Errorf("try %d: %v, line %d, %d stored", try, part, at.Line, len(log.texts(t, "w")))
		}
	}
	log.other(t, lifecycle("running"))
	r, err := appender(t, log, keys).Append(t.Context(), key, events, opt)
	if got := log.texts(t, "w"); err != nil || !r.Replayed || r.First != 1 || r.Last != 2502 || len(got) != 2500 ||
		!isPrefix(got) {
		t.Errorf("%+v %v, %d stored", r, err, len(got))
	}
}

// The log goes away between two packs for longer than the caller waits.
func TestLogGoesAwayBetweenPacks(t *testing.T) {
	for _, fault := range []error{schema.ErrUnavailable, schema.ErrUnanswered} {
		synctest.Test(t, func(t *testing.T) {
			log := &staged{Log: memory.New()}
			keys := new(memoryKeys)
			log.before = func(n int) error {
				if n >= 3 {
					return fault
				}
				return nil
			}
			events, opt := batch("w", 0, 2500), producers.AppendOptions{IdempotencyKey: "k", Within: 15 * time.Second}
			_, err := appender(t, log, keys).Append(t.Context(), key, events, opt)
			part := new(producers.PartialError)
			if !errors.Is(err, schema.ErrUnanswered) || !errors.As(err, &part) || part.Stored != 1024 {
				t.Fatalf("%v", err)
			}
			log.before = nil
			r, err := appender(t, log, keys).Append(t.Context(), key, events, opt)
			if got := log.texts(t, "w"); err != nil || !r.Replayed || r.First != 1 || r.Last != 2500 || !isPrefix(got) {
				t.Errorf("%+v %v, %d stored", r, err, len(got))
			}
		})
	}
}

// A node dies at any of its calls to the log, before or after the call has had its effect. What is stored is a
// beginning of the batch that ends with a pack, and a repeat at another node stores exactly the rest.
func TestNodeDiesBetweenPacks(t *testing.T) {
	died := errors.New("the process is gone")
	partial := 0
	for at := 1; ; at++ {
		log := &staged{Log: memory.New()}
		keys := new(memoryKeys)
		ctx, die := context.WithCancelCause(t.Context())
		log.before = func(n int) error {
			if n >= at {
				die(died)
				return schema.ErrUnanswered
			}
			return nil
		}
		// 1,024 and 176 of the run, then 300 of a child.
		events, opt := append(batch("w", 0, 1200),
			batch("w", 1200, 300, "kid")...), producers.AppendOptions{IdempotencyKey: "k"}
		_, err := appender(t, log, keys).Append(ctx, key, events, opt)
		got := log.texts(t, "w")
		switch n := len(got); {
		case !isPrefix(got) || n != 0 && n != 1024 && n != 1200 && n != 1500:
			t.Fatalf("died at call %d: %d events are stored", at, n)
		case n > 0 && n < 1500:
			partial++
		}
		log.before = nil
		r, again := appender(t, log, keys).Append(t.Context(), key, events, opt)
		if got := log.texts(t, "w"); again != nil || r.First != 1 || r.Last != 1500 || len(got) != 1500 || !isPrefix(got) {
			t.Fatalf("died at call %d: repeat %+v %v, %d events", at, r, again, len(got))
		}
		if err == nil {
			break // it was done before it could die
		}
	}
	if partial < 2 {
		t.Errorf("died between packs %d times", partial)
	}
}
