package taps

import (
	"context"
	"errors"
	"slices"

	"agentstream/schema"
	"agentstream/schema/seal"
	"agentstream/tap"
	"agentstream/tap/otlp"
)

// openedSink opens encrypted events on their way to a sink. What the tap keeps of them itself stays encrypted. An event
// whose key is gone is delivered as it is stored: the tap must not wait for it.
type openedSink struct {
	tap.Receiver
	keys *seal.Keys
}

// Write implements tap.Receiver.
func (s openedSink) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	opened := slices.Clone(batch)
	for i := range opened {
		line, err := s.keys.OpenLine(ctx, opened[i].Run.Tenant, opened[i].Line)
		switch {
		case errors.Is(err, schema.ErrKeyGone), errors.Is(err, schema.ErrBadPack):
		case err != nil:
			return nil, err
		default:
			opened[i].Line = line
		}
	}
	return s.Receiver.Write(ctx, opened)
}

// Confirm implements tap.Confirmer.
func (s openedSink) Confirm(ctx context.Context, runs []schema.RunKey) error {
	return tap.Confirm(ctx, s.Receiver, runs)
}

// openedHistory opens the runs that are read for a sink.
type openedHistory struct {
	otlp.History
	keys *seal.Keys
}

// Packs implements otlp.History.
func (h openedHistory) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) packWalk {
	return h.keys.OpenAll(ctx, h.History.Packs(ctx, key, after, through))
}
