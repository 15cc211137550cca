package rest

import (
	"context"
	"errors"
	"fmt"

	"agentstream/edge/ends"
	"agentstream/fanout"
	"agentstream/schema"
)

// movable is how large the body of an append may be whose large outputs are moved into blobs: what is left of it
// must be no more than Config.MaxBodyBytes.
func (a *API) movable() int64 {
	if a.cfg.Blobs == nil {
		return a.cfg.MaxBodyBytes
	}
	return max(a.cfg.MaxBodyBytes, min(a.cfg.MaxBlobBytes+schema.MaxEventBytes, a.cfg.BodyMemory/2))
}

// slim takes the outputs that are too large for an event out of a tenant's body, unless blobs are not kept here. What is
// not to be stored is hidden in them. Without a tenant it only finds out what would be left of the body.
func (a *API) slim(tenant string, body []byte) ([]byte, []schema.Moved, error) {
	if a.cfg.Blobs == nil {
		return body, nil, nil
	}
	var clean func([]byte) ([]byte, []byte)
	if hide := a.cfg.Redact; hide != nil && tenant != "" {
		clean = func(output []byte) ([]byte, []byte) { return hide(tenant, output) }
	}
	body, moved := schema.MoveClean(body, clean)
	if int64(len(body)) > a.cfg.MaxBodyBytes {
		return body, nil, fmt.Errorf("%w: %d bytes, %d allowed", ends.ErrBodyTooBig, len(body), a.cfg.MaxBodyBytes)
	}
	for _, m := range moved {
		if int64(len(m.Data)) > a.cfg.MaxBlobBytes {
			return body, nil, fmt.Errorf("%w: an output has %d bytes, %d allowed", ends.ErrBodyTooBig, len(m.Data),
				a.cfg.MaxBlobBytes)
		}
	}
	return body, moved, nil
}

// keep stores outputs that were taken out of events, before the events are. It returns those that were not there. A run
// may begin with these events, so it need not exist.
func (a *API) keep(ctx context.Context, key schema.RunKey, moved []schema.Moved) (fresh []string, err error) {
	if len(moved) == 0 {
		return nil, nil
	}
	if key, err = a.blobsOf(ctx, key); err != nil {
		return nil, err
	}
	for _, m := range moved {
		if _, _, err := a.cfg.Blobs.Get(ctx, key, m.Ref); err == nil {
			continue
		} else if !errors.Is(err, schema.ErrNoBlob) {
			return fresh, err
		}
		if _, err := a.blobsLeft(ctx, key, int64(len(m.Data))); err != nil {
			return fresh, err
		}
		blob, stored, err := a.cfg.Blobs.Put(ctx, key, "application/json", schema.BlobPieces(m.Data))
		if err != nil {
			return fresh, err
		}
		if stored {
			a.blobs.add(key.Tenant, blob.Size)
			fresh = append(fresh, blob.Ref)
		}
	}
	return fresh, nil
}

// disown removes blobs of a run that was to begin with events that were refused: nothing would ever remove them. Those
// of a run that is there go with it.
func (a *API) disown(ctx context.Context, key schema.RunKey, fresh []string, err error) {
	if err == nil || len(fresh) == 0 || errors.Is(err, schema.ErrUnanswered) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.LogTimeout)
	defer cancel()
	if _, err := a.cfg.Runs.Existing(ctx, key); !errors.Is(err, fanout.ErrNotFound) {
		return
	}
	for _, ref := range fresh {
		if err := a.cfg.Blobs.Drop(ctx, key, ref); err != nil {
			a.cfg.Logger.Warn("remove the blob of a run that has not begun", "run", key.String(), "blob", ref, "err", err)
		}
	}
}
