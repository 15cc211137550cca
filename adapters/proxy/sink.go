package proxy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/schema"
)

// Publishers returns sinks that write to cfg.Log, for Config.Open. They write beside the owner of a run's
// lanes: an agent that writes to its run itself, and other proxies. cfg.Key is set for each run.
func Publishers(cfg producers.Config) func(context.Context, schema.RunKey) (Sink, error) {
	cfg.Shared = true
	return func(_ context.Context, key schema.RunKey) (Sink, error) {
		one := cfg
		one.Key = key
		pub, err := producers.New(one)
		if err != nil {
			return nil, err
		}
		return &published{pub: pub, cfg: one}, nil
	}
}

type published struct {
	pub *producers.Publisher
	cfg producers.Config

	mu         sync.Mutex
	generation uint64      // of the log that places are of
	places     []headPlace // that were seen, the newest last
}

type headPlace struct {
	seq    schema.Seq
	stored uint64
}

// Send waits until the events are stored, so that what is not stored yet stays in the proxy's buffer,
// which is bounded and counted. When ctx ends before, the publisher goes on with a copy.
func (s *published) Send(ctx context.Context, events ...schema.Event) (producers.Receipt, error) {
	return s.pub.Append(ctx, cloneEvents(events)...)
}

// cloneEvents copies events with their bytes, which Publisher.Append keeps.
func cloneEvents(events []schema.Event) []schema.Event {
	size := 0
	for i := range events {
		size += len(events[i].Payload) + len(events[i].Extra)
	}
	room := make([]byte, 0, size)
	keep := func(b []byte) []byte {
		from := len(room)
		room = append(room, b...)
		return room[from:len(room):len(room)]
	}
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		e.Payload = keep(e.Payload)
		if len(e.Extra) > 0 {
			e.Extra = keep(e.Extra)
		}
	}
	return events
}

// Close lets go of the publisher.
func (s *published) Close(ctx context.Context) error { return s.pub.Close(ctx) }

// Pauses between two questions to a log that does not answer.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Standing asks the log, and the archive for runs that the log no longer holds, until one answers.
func (s *published) Standing(ctx context.Context) (at Standing, err error) {
	err = patiently(ctx, func(ctx context.Context) error {
		at, err = s.ask(ctx)
		return err
	})
	return at, err
}

// patiently repeats a question until it is answered or ctx ends.
func patiently(ctx context.Context, ask func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := ask(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, schema.ErrMalformed) || errors.Is(err, schema.ErrBadPack) ||
			errors.Is(err, schema.ErrKeyGone) {
			return err
		}
		if ended := backoff.Sleep(ctx, pause); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// Events reads the log, and what has left its window from the archive, where that keeps events.
func (s *published) Events(ctx context.Context, after, through schema.Seq, take func(*schema.Event)) error {
	return patiently(ctx, func(ctx context.Context) error {
		for pack, err := range s.cfg.Log.Since(ctx, s.cfg.Key, s.near(after)) {
			if err != nil {
				return fmt.Errorf("read %s behind %d: %w", s.cfg.Key, after, err)
			}
			if past, ok := s.cfg.Archive.(producers.Past); ok && pack.First > after+1 {
				if err := each(past.Packs(ctx, s.cfg.Key, after, min(pack.First-1, through)), &after, through, take); err != nil {
					return err
				}
			}
			if err := eachRecord(&pack, &after, through, take); err != nil || after >= through {
				return err
			}
		}
		if past, ok := s.cfg.Archive.(producers.Past); ok && after < through {
			return each(past.Packs(ctx, s.cfg.Key, after, through), &after, through, take)
		}
		return nil
	})
}

func each(packs iter.Seq2[schema.Pack, error], after *schema.Seq, through schema.Seq, take func(*schema.Event)) error {
	for pack, err := range packs {
		if err != nil {
			return fmt.Errorf("read the archive behind %d: %w", *after, err)
		}
		if err := eachRecord(&pack, after, through, take); err != nil {
			return err
		}
	}
	return nil
}

// eachRecord hands the events of a pack on, and moves after with them.
func eachRecord(pack *schema.Pack, after *schema.Seq, through schema.Seq, take func(*schema.Event)) error {
	for r, err := range pack.Records(*after) {
		if err != nil {
			return err
		}
		if r.Seq > through {
			return nil
		}
		*after = r.Seq
		if !slices.Contains(memoryTypes, string(r.Type)) {
			continue
		}
		e, err := schema.DecodeLine(r.Line)
		if err != nil {
			return err
		}
		take(&e)
	}
	return nil
}

// near returns the position of a pack that holds no event behind a seq, the newest that is known; 0: the beginning.
func (s *published) near(after schema.Seq) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.places) - 1; i >= 0; i-- {
		if s.places[i].seq <= after {
			return s.places[i].stored
		}
	}
	return 0
}

// maxPlaces bounds the places of a run that are known.
const maxPlaces = 64

// know keeps where the head was.
func (s *published) know(h schema.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.places); n > 0 && (h.Generation != s.generation || h.Last < s.places[n-1].seq) {
		s.places = nil // the log was renewed
	}
	s.generation = h.Generation
	if len(s.places) == maxPlaces {
		s.places = slices.Delete(s.places, 0, 1)
	}
	s.places = append(s.places, headPlace{h.Last, h.Stored})
}

const askTimeout = 5 * time.Second

func (s *published) ask(ctx context.Context) (Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	head, err := s.cfg.Log.Head(ctx, s.cfg.Key, "")
	if err == nil && head.HasEvents() {
		s.know(head)
	}
	if err == nil && !head.HasEvents() && s.cfg.Archive != nil {
		head, err = s.cfg.Archive.Head(ctx, s.cfg.Key, "")
	}
	if err != nil {
		return Standing{}, fmt.Errorf("read the head of %s: %w", s.cfg.Key, err)
	}
	return Standing{Last: head.Last, State: head.State}, nil
}
