package node

import (
	"context"
	"errors"
	"iter"

	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/schema"
	"agentstream/schema/seal"
)

// blobs opens what keeps the blobs of runs, and returns how large they may be; 0 is the edge's own default. nil: they
// are neither taken nor given. pace, which may be nil, is the log's.
func (c *Config) blobs(pace *paced, keys *seal.Keys) (store edge.Blobs, bounds blobBounds, err error) {
	bounds, on, err := c.Flags.blobs()
	if err != nil || !on {
		return nil, bounds, err
	}
	b, err := natskit.NewBlobs(c.Conn)
	if err != nil {
		return nil, bounds, err
	}
	store = b
	if c.Archive != nil {
		store = keptBlobs{b, c.Archive}
	}
	if c.Room != nil || pace != nil {
		store = heldBlobs{store, c.Room, pace}
	}
	if keys != nil {
		store = sealedBlobs{store, keys}
	}
	return store, bounds, nil
}

// keptBlobs looks among the objects for what is not at the log any more.
type keptBlobs struct {
	edge.Blobs
	archive Archive
}

// Get finds a blob at the log, or else in the archive.
func (b keptBlobs) Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error],
	error) {
	found, pieces, err := b.Blobs.Get(ctx, key, ref)
	if !errors.Is(err, schema.ErrNoBlob) {
		return found, pieces, err
	}
	return b.archive.Blob(ctx, key, ref)
}

// heldBlobs refuses what there is no room for, and waits until the log in this process can hold more.
type heldBlobs struct {
	edge.Blobs
	room *DiskMonitor // may be nil
	pace *paced       // may be nil
}

// Put refuses with schema.ErrFull.
func (b heldBlobs) Put(ctx context.Context, key schema.RunKey, mediaType string,
	pieces iter.Seq2[[]byte, error]) (schema.Blob, bool, error) {
	checked := func(yield func([]byte, error) bool) {
		for piece, err := range pieces {
			if err == nil && b.room != nil {
				err = b.room.err()
			}
			if err == nil && b.pace != nil {
				err = b.pace.wait(ctx, key.Tenant, int64(len(piece)))
			}
			if !yield(piece, err) {
				return
			}
		}
	}
	return b.Blobs.Put(ctx, key, mediaType, checked)
}
