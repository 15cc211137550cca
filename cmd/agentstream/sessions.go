package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

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
func (c *DevCmd) answerSessions(n *node, store *sqlite.Store, hooks producers.Hooks, log *slog.Logger) (part, error) {
	cfg := worker.Config{
		Log: n.log, Waker: n.log, Attend: n.log.Attend, Ask: n.log.Ask,
		Archive: guarded(n.archive, store), Past: n.archive,
		Answer: demo.Replies{Speed: c.DemoSpeed}.Answer, Logger: log, Hooks: hooks,
	}
	d, err := worker.New(cfg)
	if err != nil {
		return part{}, err
	}
	return part{"demo sessions", func(ctx context.Context) error {
		var group sync.WaitGroup
		defer group.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		followed := make(chan error, 1)
		group.Go(func() {
			err := n.log.Follow(ctx, pubjs.FollowConfig{Name: sessionsName, Logger: log}, d.Hear)
			cancel()
			followed <- err
		})
		return errors.Join(d.Run(ctx), <-followed)
	}}, nil
}
