package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// overwrite removes the messages of a subject one by one, in such a way that the server writes random bytes over each.
// below is as in purge. It returns how many there were.
func (p *Purger) overwrite(ctx context.Context, stream, subject string, below uint64) (n int, err error) {
	for next := uint64(1); ; {
		page, err := natskit.ReadBatch(ctx, p.nc, stream,
			natskit.BatchRequest{Seq: next, NextBy: subject, Batch: purgePage, MaxBytes: purgePageSize}, purgeIdle)
		none := errors.Is(err, natskit.ErrNoMessage) || errors.Is(err, nats.ErrNoResponders)
		if none || err != nil && natskit.Missing(ctx, p.nc, stream) {
			return n, nil // there are none, or there is no such stream: purge says which
		}
		if err != nil {
			return n, err
		}
		for _, m := range page.Msgs {
			if below > 0 && m.Seq >= below {
				return n, nil
			}
			if err := p.eraseMessage(ctx, stream, m.Seq); err != nil {
				return n, fmt.Errorf("erase message %d of %s: %w", m.Seq, stream, err)
			}
			n++
			next = m.Seq + 1
		}
		if !page.More || len(page.Msgs) == 0 {
			return n, nil
		}
	}
}

// overwriteBlobs is overwrite for the blobs of a run; it adds to messages.
func (p *Purger) overwriteBlobs(ctx context.Context, key schema.RunKey, messages int) (int, error) {
	n, err := p.overwrite(ctx, natskit.BlobStream, natskit.BlobFilter(key), 0)
	return messages + n, err
}

// eraseMessage removes one message and has its bytes overwritten. One that is not there any more is no error.
func (p *Purger) eraseMessage(ctx context.Context, stream string, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, purgeIdle)
	defer cancel()
	reply, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil && answer.Error.Code != 404 {
		return answer.Error
	}
	return nil
}
