package natskit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// upload is one Put under way.
type upload struct {
	b     *Blobs
	key   schema.RunKey
	id    string
	sum   *schema.BlobSum
	parts int   // stored, or about to be
	size  int64 // bytes
	doubt bool  // it may be one that is there
}

// run stores whole pieces as they come, and then, in one message, the rest and what is known of all.
func (u *upload) run(ctx context.Context, mediaType string, pieces iter.Seq2[[]byte, error]) (schema.Blob, bool,
	error) {
	var rest []byte
	for piece, err := range pieces {
		if err != nil {
			return schema.Blob{}, false, err
		}
		if len(rest) > 0 || len(piece) > schema.BlobPiece {
			return schema.Blob{}, false, fmt.Errorf("a piece of %d bytes behind the last", len(piece))
		}
		_, _ = u.sum.Write(piece) // never fails
		u.size += int64(len(piece))
		if len(piece) < schema.BlobPiece {
			rest = piece
			continue
		}
		if u.parts == 0 {
			if err := u.mark(ctx); err != nil {
				return schema.Blob{}, false, err
			}
		}
		subject := blobSubject(u.key) + "part." + u.id + "." + strconv.Itoa(u.parts)
		u.parts++
		if _, err := u.create(ctx, &nats.Msg{Subject: subject, Data: piece}); err != nil {
			return schema.Blob{}, false, err
		}
	}
	return u.finish(ctx, mediaType, rest)
}

// finish makes the blob one that is there, unless it is already.
func (u *upload) finish(ctx context.Context, mediaType string, rest []byte) (blob schema.Blob, stored bool, err error) {
	blob = schema.Blob{Ref: u.sum.Ref(), Type: mediaType, Size: u.size}
	if blob.Ref == "" {
		return blob, false, fmt.Errorf("sealed content that is not whole: %w", schema.ErrMalformed)
	}
	if err := u.mark(ctx); err != nil {
		return blob, false, err
	}
	m := &nats.Msg{Subject: blobSubject(u.key) + "whole." + blob.Ref + "." + strconv.FormatInt(u.size, 10), Data: rest,
		Header: nats.Header{}}
	m.Header.Set(blobType, mediaType)
	m.Header.Set(blobUpload, u.id)
	there, err := u.create(ctx, m)
	if err != nil {
		_, look := LastFromLeader(ctx, u.b.nc, BlobStream, m.Subject)
		u.doubt = !NoRoom(err) || !errors.Is(look, ErrNoMessage) // else an earlier try may have been stored
		return blob, false, err
	}
	if there != nil && there.header(blobUpload) != u.id {
		blob, err = blobOf(*there)
		return blob, false, err
	}
	// Once more: the run may have been removed between the first mark and the blob, and what is left is found by it.
	_ = u.mark(ctx)
	return blob, true, nil
}

// mark records that the run has blobs here.
func (u *upload) mark(ctx context.Context) error {
	_, err := u.create(ctx, &nats.Msg{Subject: BlobMark(u.key)})
	return err
}

// create stores a message unless its subject has one, which it returns then: it may be of an earlier try.
func (u *upload) create(ctx context.Context, m *nats.Msg) (there *Msg, err error) {
	err = repeatOn(ctx, u.b.nc, BlobStream, func(ctx context.Context, wait time.Duration) error {
		there = nil
		once, cancel := context.WithTimeout(ctx, 4*wait)
		defer cancel()
		_, err := u.b.js.PublishMsg(once, m, jetstream.WithRetryAttempts(0), jetstream.WithExpectLastSequencePerSubject(0))
		if err == nil || !IsRefused(err) {
			return err
		}
		have, err := LastFromLeader(ctx, u.b.nc, BlobStream, m.Subject)
		if errors.Is(err, ErrNoMessage) { // it is being stored, or was removed
			return errAgain
		}
		there = &have
		return err
	})
	return there, err
}

// undoing bounds how long the parts of a blob that is not to be are removed, also when nobody waits any more.
const undoing = 5 * time.Second

// undo removes the pieces of this upload. What cannot be removed now goes with the run.
func (u *upload) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
	defer cancel()
	_, _ = u.b.purge(ctx, blobSubject(u.key)+"part."+u.id+".>")
}
