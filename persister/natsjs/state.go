package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
)

// state is the state of a stream, from its leader.
type state struct {
	info     *jetstream.StreamInfo
	identity string
}

func readState(ctx context.Context, js jetstream.JetStream, stream string) (*state, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo()
	return &state{info: info, identity: info.Created.UTC().Format(time.RFC3339Nano)}, nil
}

// compare returns the stored offset as an offset of this stream. The error wraps persister.ErrBehind when the stream
// lacks messages that are stored: it ends before them, has others at their positions, or is another stream that is
// not empty.
func (s *state) compare(ctx context.Context, nc *nats.Conn, stored persister.Offset) (persister.Offset, error) {
	st := &s.info.State
	fresh := persister.Offset{Stream: s.info.Config.Name, Identity: s.identity, Generation: stored.Generation}
	switch {
	case stored.Identity == "":
		return fresh, nil
	case stored.Identity != s.identity && st.Msgs == 0:
		return fresh, nil
	case stored.Identity != s.identity:
		return fresh, fmt.Errorf("the stream was made at %s, what is stored is of one made at %s: %w", s.identity,
			stored.Identity, persister.ErrBehind)
	case st.LastSeq < stored.Position:
		return stored, fmt.Errorf("the stream ends at %d, %d is stored: %w", st.LastSeq, stored.Position, persister.ErrBehind)
	case stored.StoredAt.IsZero() || stored.Position < st.FirstSeq:
		return stored, nil
	}
	m, err := natskit.AtFromLeader(ctx, nc, s.info.Config.Name, stored.Position)
	switch {
	case errors.Is(err, natskit.ErrNoMessage): // it was removed since, with its run
	case err != nil:
		return stored, err
	case !m.Time.Equal(stored.StoredAt):
		return stored, fmt.Errorf("the message at %d is of %s, the one that is stored of %s: %w", stored.Position,
			m.Time.UTC().Format(time.RFC3339Nano), stored.StoredAt.UTC().Format(time.RFC3339Nano), persister.ErrBehind)
	}
	return stored, nil
}

// Offsets returns the stored offsets of streams.
type Offsets interface {
	Offsets(ctx context.Context) ([]persister.StoredOffset, error)
}

// Compare returns nil when the stream of a partition has all messages that are stored of it, and the stored
// generation. Otherwise the error wraps persister.ErrBehind: nothing may be appended before a persister has refilled
// the stream.
func Compare(ctx context.Context, js jetstream.JetStream, store Offsets, partition int) (generation uint64, err error) {
	stream := natskit.StreamName(partition)
	// The offset is read first: a stream that is read later has what was stored before.
	offsets, err := store.Offsets(ctx)
	if err != nil {
		return 0, fmt.Errorf("natsjs: compare %s with what is stored: %w", stream, err)
	}
	s, err := readState(ctx, js, stream)
	if err != nil {
		return 0, fmt.Errorf("natsjs: compare %s with what is stored: %w", stream, err)
	}
	for _, o := range offsets {
		if o.Stream == stream {
			at, err := s.compare(ctx, js.Conn(), o.Offset)
			if err == nil && at.Identity != o.Identity {
				// Until the persister has moved the offset here, it may still store messages that it has read from
				// the former stream.
				err = fmt.Errorf("the stream was made anew at %s: %w", s.identity, persister.ErrBehind)
			}
			if first := s.info.State.FirstSeq; err == nil && first > o.Position+1 {
				// Objects may have what was stored of them, when the store is an older copy of itself: a persister
				// looks before a number is given again.
				err = fmt.Errorf("it begins at %d, up to %d is stored: %w", first, o.Position, persister.ErrBehind)
			}
			if err != nil {
				return 0, fmt.Errorf("natsjs: compare %s with what is stored: %w", stream, err)
			}
			return o.Generation, nil
		}
	}
	if first := s.info.State.FirstSeq; first > 1 {
		return 0, fmt.Errorf("natsjs: compare %s with what is stored: it begins at %d, nothing of it is stored: %w",
			stream, first, persister.ErrBehind)
	}
	return 0, nil
}
