package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/persister/sqlite"
	"agentstream/producers"
	"agentstream/producers/demo"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/worker"
)

// sessionsName is what NATS keeps the place under up to which sessions were answered.
const sessionsName = "demo-sessions"

// answerSessions returns the part that answers the sessions which people create, in the demo's words: as any worker
// of a platform would (docs/producers.md).
//
//	log ─▶ Follow ─▶ worker ─▶ a turn for each message ─▶ demo.Replies ─▶ log
func (c *DevCmd) answerSessions(n *node.Node, store *sqlite.Store, hooks producers.Hooks, log *slog.Logger) (process.Part, error) {
	cfg := worker.Config{
		Log: n.Log, Waker: n.Log, Attend: n.Log.Attend, Ask: n.Log.Ask,
		Archive: node.Guarded(n.Archive, store), Past: n.Archive,
		Answer: demo.Replies{Speed: c.DemoSpeed}.Answer, Logger: log, Hooks: hooks,
	}
	d, err := worker.New(cfg)
	if err != nil {
		return process.Part{}, err
	}
	return process.Part{Name: "demo sessions", Run: func(ctx context.Context) error {
		var group sync.WaitGroup
		defer group.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		followed := make(chan error, 1)
		group.Go(func() {
			err := n.Log.Follow(ctx, pubjs.FollowConfig{Name: sessionsName, Logger: log}, d.Receive)
			cancel()
			followed <- err
		})
		return errors.Join(d.Run(ctx), <-followed)
	}}, nil
}
