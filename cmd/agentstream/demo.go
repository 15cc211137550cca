package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/producers/demo"
	"agentstream/schema"
)

// publishDemo tells the demo run and obeys the commands that are appended to it, until ctx ends.
func publishDemo(ctx context.Context, n *node, key schema.RunKey, cfg demo.Config, hooks producers.Hooks, log *slog.Logger) error {
	pub, err := producers.New(producers.Config{Log: n.log, Key: key, Logger: log, Hooks: hooks})
	if err != nil {
		return err
	}
	commands := make(chan schema.Event)
	cfg.Sink, cfg.RunID, cfg.Commands = pubSink{pub}, key.Run, commands
	agent, err := demo.New(cfg)
	if err != nil {
		return err
	}
	listening, stop := context.WithCancel(ctx)
	go func() {
		defer close(commands)
		if err := followCommands(listening, n.hub, key, commands); err != nil {
			log.Warn("dev: the demo run obeys no more commands", "run", key.String(), "err", err)
		}
	}()
	err = agent.Run(ctx)
	stop()
	for range commands { // until the one who hands them over has gone
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if cerr := pub.Close(end); err == nil {
		err = cerr
	}
	return err
}

// followCommands reads a run from its first event on, as any watcher does, and hands its commands over
// until ctx ends. What the log cannot give now is asked for again.
func followCommands(ctx context.Context, hub *fanout.Hub, key schema.RunKey, to chan<- schema.Event) error {
	after := schema.Seq(0)
	for {
		err := handCommands(ctx, hub, key, &after, to)
		switch {
		case ctx.Err() != nil, errors.Is(err, fanout.ErrClosed):
			return nil
		case errors.Is(err, fanout.ErrNotFound), errors.Is(err, fanout.ErrUnavailable): // not begun; or an outage
		default:
			return err
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil
		}
	}
}

// handCommands goes on behind after until the subscription ends.
func handCommands(ctx context.Context, hub *fanout.Hub, key schema.RunKey, after *schema.Seq, to chan<- schema.Event) error {
	sub, err := hub.Subscribe(ctx, key, *after)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		batch, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		for i := range batch.Packs {
			for r, err := range batch.Packs[i].Records(batch.After) {
				if err != nil {
					return err
				}
				*after = r.Seq
				if !strings.HasPrefix(string(r.Type), "command.") {
					continue
				}
				e, err := r.Event()
				if err != nil {
					return fmt.Errorf("command %d: %w", r.Seq, err)
				}
				select {
				case to <- e:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}
}

// pubSink is a publisher as the demo agent sees it.
type pubSink struct{ *producers.Publisher }

func (s pubSink) Publish(ctx context.Context, events ...schema.Event) error {
	_, err := s.Publisher.Publish(ctx, events...)
	return err
}
