package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// Newest returns the stream of a run and the position of its newest message, 0 when there is none.
func (p *Purger) Newest(ctx context.Context, key schema.RunKey) (stream string, position uint64, err error) {
	run := p.run(key)
	last, err := natskit.LastFromLeader(ctx, p.nc, run.Stream(), run.Filter())
	if err != nil && !errors.Is(err, natskit.ErrNoMessage) {
		return "", 0, fmt.Errorf("natsjs: newest message of %s: %w", key, err)
	}
	return run.Stream(), last.Seq, nil
}

// Messages iterates over the messages of a run up to a position, in order.
func (p *Purger) Messages(ctx context.Context, key schema.RunKey, through uint64) iter.Seq2[persister.Logged, error] {
	return func(yield func(persister.Logged, error) bool) {
		for m, err := range messagesOf(ctx, p.nc, p.run(key)) {
			if errors.Is(err, natskit.ErrNoMessage) || err == nil && m.Seq > through {
				return
			}
			if err != nil {
				yield(persister.Logged{}, fmt.Errorf("natsjs: messages of %s: %w", key, err))
				return
			}
			l := persister.Logged{Position: m.Seq, Body: m.Data}
			if pack, err := natskit.ParsePack(m); err == nil {
				l.Pack = pack
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// Cut has the messages of a run up to a position overwritten, and removes them. They must be stored: readers get them from
// the archive then. Idempotency keys stay. It returns the number of messages.
func (p *Purger) Cut(ctx context.Context, key schema.RunKey, through uint64) (int, error) {
	run := p.run(key)
	n, err := p.overwrite(ctx, run.Stream(), run.Filter(), through+1)
	if err != nil {
		return n, fmt.Errorf("natsjs: cut %s: %w", key, err)
	}
	more, err := p.remove(ctx, run.Stream(), run.Filter(), through+1)
	if err != nil {
		err = fmt.Errorf("natsjs: cut %s: %w", key, err)
	}
	return n + more, err
}

// ListBlobs returns the blobs of a run.
func (p *Purger) ListBlobs(ctx context.Context, key schema.RunKey) ([]schema.Blob, error) {
	list, err := p.blobs.List(ctx, key)
	if err != nil && natskit.Missing(ctx, p.nc, natskit.BlobStream) { // the log is of an older release, which has none
		return nil, nil
	}
	return list, err
}

// Blob returns a blob of a run, and its content in pieces. The error wraps schema.ErrNoBlob when there is none.
func (p *Purger) Blob(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error) {
	return p.blobs.Get(ctx, key, ref)
}

// EraseBlob has the messages of a blob overwritten, and removes them. One that is not there is removed.
func (p *Purger) EraseBlob(ctx context.Context, key schema.RunKey, ref string) error {
	filters, err := p.blobs.Filters(ctx, key, ref)
	for _, filter := range filters {
		if err == nil {
			_, err = p.purgeErased(ctx, natskit.BlobStream, filter)
		}
	}
	if err != nil {
		return fmt.Errorf("natsjs: erase blob %s of %s: %w", ref, key, err)
	}
	return nil
}

func (p *Purger) purgeErased(ctx context.Context, stream, filter string) (int, error) {
	n, err := p.overwrite(ctx, stream, filter, 0)
	if err != nil {
		return n, err
	}
	return p.remove(ctx, stream, filter, 0)
}
