package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"

	"agentstream/adapters/demo"
	"agentstream/adapters/model"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/internal/spans"
	"agentstream/persister/postgres"
	"agentstream/persister/sqlite"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/producers/worker"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/nimi/answer"
	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/seal"
	"agentstream/schema/trace"
)

// sessionsName is what NATS keeps the place under up to which sessions were answered.
const sessionsName = "demo-sessions"

// answerSessions returns the part that answers the sessions which people create, with the model that they name, or else
// in the demo's words: as any worker of a platform would (docs/producers.md).
//
//	log ─▶ Follow ─▶ worker ─▶ a turn for each message ─▶ models, demo.Replies ─▶ log
func (c *DevCmd) answerSessions(n *node.Node, store *sqlite.Store, hooks producers.Hooks,
	log *slog.Logger) (process.Part, error) {
	words := demo.Replies{Speed: c.DemoSpeed}.Answer
	set := answer.Models{Set: &model.Set{Other: words}}
	model.AddScripted(set.Set, words, c.DemoSpeed)
	if err := c.add(set.Set); err != nil {
		return process.Part{}, err
	}
	cfg := useModels(worker.Config{
		Log: n.Log, Waker: n.Log, Attend: n.Log.Attend, Ask: n.Log.Ask,
		Archive: node.GuardArchive(n.Archive, store), Past: n.Archive, Redact: n.Redact, Seal: n.Keys,
		Logger: log, Hooks: hooks,
	}, set)
	cfg.Answer = addSpans(cfg.Answer, n.Tracer)
	return answering(cfg, n.Log, sessionsName, set, []string{c.Tenant}, log)
}

// useModels has a worker answer with models, in the words of the protocols in which sessions are asked.
func useModels(cfg worker.Config, set answer.Models) worker.Config {
	cfg.Answer, cfg.Reasons = set.Answer, answer.Reasons()
	cfg.Outcome, cfg.Alone = qoder.IsOutcome, langgraph.Alone
	return cfg
}

// addSpans returns an Answer that has a span in the trace of its message, if that is sampled. The model is asked below it.
func addSpans(answer worker.Answer, t *spans.Tracer) worker.Answer {
	if t == nil {
		return answer
	}
	return func(ctx context.Context, q *worker.Task) (stop string, err error) {
		span := t.OpenAnswer(q.Message.Event.Trace())
		if span == nil {
			return answer(ctx, q)
		}
		key := q.Key()
		end := spans.End{Name: "answer", Tenant: key.Tenant, Run: key.Run, Failed: true} // also of one that panics
		defer func() { span.Close(end) }()
		stop, err = answer(trace.NewContext(ctx, span.Traceparent()), q)
		end.Failed = err != nil && ctx.Err() == nil
		return stop, err
	}
}

// answering returns the part that answers sessions, and announces the models that do.
func answering(cfg worker.Config, l *pubjs.Log, name string, set answer.Models, tenants []string,
	log *slog.Logger) (process.Part, error) {
	d, err := worker.New(cfg)
	if err != nil {
		return process.Part{}, err
	}
	return process.Part{Name: "sessions", Run: func(ctx context.Context) error {
		var group sync.WaitGroup
		defer group.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 2)
		for _, run := range []func() error{
			func() error { return l.Follow(ctx, pubjs.FollowConfig{Name: name, Logger: log}, d.Receive) },
			func() error { return set.Announce(ctx, cfg.Log, cfg.Archive, tenants, log) },
		} {
			group.Go(func() {
				err := run()
				cancel()
				ended <- err
			})
		}
		return errors.Join(d.Run(ctx), <-ended, <-ended)
	}}, nil
}

// openedRows is a store of rows whose packs are opened.
type openedRows struct {
	*postgres.Store
	keys *seal.Keys
}

// Packs implements producers.Past.
func (o openedRows) Packs(ctx context.Context, key schema.RunKey, after,
	through schema.Seq) iter.Seq2[schema.Pack, error] {
	return o.keys.OpenAll(ctx, o.Store.Packs(ctx, key, after, through))
}
