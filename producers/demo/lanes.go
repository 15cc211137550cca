package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"agentstream/schema"
)

// Lanes is a Sink that has one sink for each lane, as publishers do. Open is called once for each
// lane, at its first event; "" is the run itself. It serves one Run at a time.
type Lanes struct {
	Open func(ctx context.Context, lane string) (Sink, error)

	sinks map[string]Sink
}

// Publish hands each event to its lane's sink. Lanes do not wait for each other, except at Flush.
func (l *Lanes) Publish(ctx context.Context, events ...schema.Event) error {
	for _, e := range events {
		sink := l.sinks[e.ChildID]
		if sink == nil {
			opened, err := l.Open(ctx, e.ChildID)
			if err != nil {
				return fmt.Errorf("open lane %q: %w", e.ChildID, err)
			}
			if l.sinks == nil {
				l.sinks = make(map[string]Sink)
			}
			sink, l.sinks[e.ChildID] = opened, opened
		}
		if err := sink.Publish(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// Flush flushes all lanes.
func (l *Lanes) Flush(ctx context.Context) error {
	var errs []error
	for _, lane := range slices.Sorted(maps.Keys(l.sinks)) {
		errs = append(errs, l.sinks[lane].Flush(ctx))
	}
	return errors.Join(errs...)
}

var _ Sink = (*Lanes)(nil)
