package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
}

// Send waits until the events are stored, so that what is not stored yet stays in the proxy's buffer,
// which is bounded and counted. When ctx ends before, the publisher goes on with a copy.
func (s *published) Send(ctx context.Context, events ...schema.Event) error {
	_, err := s.pub.Append(ctx, owned(events)...)
	return err
}

// owned copies events with their bytes, which Publisher.Append keeps.
func owned(events []schema.Event) []schema.Event {
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

// Flush has nothing to wait for.
func (s *published) Flush(ctx context.Context) error { return s.pub.Flush(ctx) }

// Close lets go of the publisher.
func (s *published) Close(ctx context.Context) error { return s.pub.Close(ctx) }

// Pauses between two questions to a log that does not answer.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Standing asks the log, and the archive for runs that the log no longer holds, until one answers.
func (s *published) Standing(ctx context.Context) (Standing, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		at, err := s.ask(ctx)
		if err == nil || ctx.Err() != nil {
			return at, err
		}
		if ended := backoff.Sleep(ctx, pause); ended != nil {
			return Standing{}, errors.Join(err, ended)
		}
	}
}

const askTimeout = 5 * time.Second

func (s *published) ask(ctx context.Context) (Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	head, err := s.cfg.Log.Head(ctx, s.cfg.Key, "")
	if err == nil && !head.Exists() && s.cfg.Archive != nil {
		head, err = s.cfg.Archive.Head(ctx, s.cfg.Key, "")
	}
	if err != nil {
		return Standing{}, fmt.Errorf("read the head of %s: %w", s.cfg.Key, err)
	}
	return Standing{Last: head.Last, State: head.State}, nil
}
