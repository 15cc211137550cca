package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"agentstream/adapters/demo"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// publishDemo publishes the demo run and obeys the commands that are appended to it, until ctx ends.
func publishDemo(ctx context.Context, n *node.Node, key schema.RunKey, cfg demo.Config, hooks producers.Hooks,
	log *slog.Logger) error {
	pub, err := producers.New(producers.Config{Log: n.Log, Key: key, Redact: n.Redact, Seal: n.Keys, Logger: log,
		Hooks: hooks})
	if err != nil {
		return err
	}
	leave, err := n.Log.Attend(ctx, pub) // it may be paused for longer than a reaper is patient
	if err != nil {
		return err
	}
	defer leave()
	// Commands to the children come to this process, too.
	told, err := command.New(command.Config{Publisher: pub, Waker: n.Log, Lanes: func(string) bool { return true }})
	if err != nil {
		return err
	}
	defer told.Close()
	commands := make(chan schema.Event)
	cfg.Sink, cfg.RunID, cfg.Commands = stopped{pub, ctx}, key.Run, commands
	agent, err := demo.New(cfg)
	if err != nil {
		return err
	}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(commands)
		if err := handCommands(listening, told, commands); err != nil && listening.Err() == nil {
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

// stopped is a sink that accepts nothing after its process was told to end, as if it had been killed: the run is left
// open, and a reaper ends it.
type stopped struct {
	producers.Sink
	process context.Context
}

// Send accepts events.
func (s stopped) Send(ctx context.Context, events ...schema.Event) error {
	if s.process.Err() != nil {
		return context.Cause(s.process)
	}
	return s.Sink.Send(ctx, events...)
}

// handCommands hands commands over as events, and takes each once the agent has it, until ctx ends.
func handCommands(ctx context.Context, told *command.Reader, to chan<- schema.Event) error {
	for {
		c, err := told.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case to <- c.Event:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := c.Commit(ctx); err != nil && !errors.Is(err, schema.ErrEnded) { // that which the agent has done was faster
			return err
		}
	}
}
