package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/protocols/nimi"
	"agentstream/schema"
)

// announceEvery is how often models are announced again: what a feed holds is trimmed after a while.
const announceEvery = 12 * time.Hour

// Announce appends to the feed of providers of each tenant which models are served, at once and then twice a day, until
// ctx ends. It tries again while the log is away.
func (m Models) Announce(ctx context.Context, log producers.Log, archive producers.Archive, tenants []string,
	logger *slog.Logger) error {
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log, Archive: archive, Logger: logger})
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		wait := announceEvery
		if err := m.announce(ctx, a, tenants); err == nil {
			try = 0
		} else if ctx.Err() == nil {
			logger.Warn("answer: announce what is served; it is tried again", "err", err)
			wait = backoff.Delay(try, time.Second, time.Minute)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

func (m Models) announce(ctx context.Context, a *producers.Appender, tenants []string) error {
	all := m.Providers()
	var events []schema.Event
	for _, p := range slices.Sorted(maps.Keys(all)) {
		payload, err := json.Marshal(map[string]any{"provider_name": p, "state": "healthy", "models": all[p]})
		if err != nil {
			return fmt.Errorf("answer: announce %s: %w", p, err)
		}
		events = append(events, schema.Event{Type: nimi.FeedType(nimi.StreamProvider), Actor: "worker", Payload: payload})
	}
	for _, tenant := range tenants {
		if _, err := a.Append(ctx, schema.RunKey{Tenant: tenant, Run: nimi.FeedRun(nimi.StreamProvider)}, events,
			producers.AppendOptions{}); err != nil {
			return fmt.Errorf("answer: announce to %s: %w", tenant, err)
		}
	}
	return nil
}
