package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
)

// Lag implements persister.Queue.
func (q *Queue) Lag(ctx context.Context, stored persister.Offset) (persister.Lag, error) {
	lag := persister.Lag{Stream: q.stream}
	s, err := readState(ctx, q.js, q.stream)
	if err != nil {
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	}
	if stored.Identity != s.identity {
		stored = persister.Offset{}
	} else if q.cfg.Tap == "" {
		q.retire(ctx)
	}
	q.mu.Lock()
	q.loss.advance(stored, s.info.State.FirstSeq)
	lag.Lost = q.loss.lost
	q.mu.Unlock()
	lag.Window = s.info.Config.MaxAge
	lag.Room, lag.Bounded = room(s.info, stored.Position)
	m, err := natskit.NextFromLeader(ctx, q.nc, q.stream, q.filter, stored.Position+1)
	switch {
	case errors.Is(err, natskit.ErrNoMessage): // all messages are stored or have expired
	case err != nil:
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	default:
		lag.Oldest = m.Time
		lag.Messages = s.info.State.LastSeq - min(m.Seq, s.info.State.LastSeq) + 1
	}
	return lag, nil
}

// room returns the part of a bounded stream that new messages may fill before the stream drops the first message that
// is not stored: the free part and that of the messages before it, estimated by the average size.
func room(s *jetstream.StreamInfo, stored uint64) (part float64, bounded bool) {
	if s.Config.MaxBytes <= 0 {
		return 1, false
	}
	filled := float64(s.State.Bytes) / float64(s.Config.MaxBytes)
	done := 0.0
	if all := s.State.LastSeq - s.State.FirstSeq + 1; s.State.Msgs > 0 && stored >= s.State.FirstSeq {
		done = float64(stored-s.State.FirstSeq+1) / float64(all)
	}
	return 1 - filled*(1-done), true
}

// loss counts messages that the stream dropped before they were read. Messages missing inside the stream were purged
// and are no loss. At its front the two cannot be distinguished.
type loss struct {
	lost     uint64
	identity string // of the stream that is read; "": Seek was not called
	through  uint64 // messages up to this position were returned or are stored
	judged   uint64 // losses up to this position are counted
	newest   uint64 // position of the newest of them since it was asked for; 0: there is none
}

// seek sets the position after which reading begins. Messages between it and first, where the stream begins, are
// lost.
func (l *loss) seek(at persister.Offset, first uint64) {
	if l.identity != at.Identity {
		l.identity, l.judged = at.Identity, 0
	}
	l.through = at.Position
	l.advance(at, first)
	if first > at.Position+1 { // also what was counted before
		l.newest = first - 1
	}
}

// advance moves the loss to the stored offset, and counts the messages that are gone before first, the first
// position of the stream now.
func (l *loss) advance(stored persister.Offset, first uint64) {
	l.through = max(l.through, stored.Position)
	if l.identity != "" {
		l.countDropped(l.through, first)
	}
}

// countDropped counts the messages between two positions and before the stream's first message.
func (l *loss) countDropped(after, first uint64) {
	if from := max(after, l.judged) + 1; first > from {
		l.lost += first - from
		l.judged, l.newest = first-1, first-1
	}
}

// LastDropped implements persister.Dropper.
func (q *Queue) LastDropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	newest := q.loss.newest
	q.loss.newest = 0
	return newest
}

// look counts losses in the gaps of what was returned: the part before the stream's first message.
func (q *Queue) look(ctx context.Context, msgs []persister.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gap := msgs[0].Position > q.loss.through+1
	for i := 1; i < len(msgs) && !gap; i++ {
		gap = msgs[i].Position != msgs[i-1].Position+1
	}
	first := uint64(0)
	if gap {
		if s, err := readState(ctx, q.js, q.stream); err == nil {
			first = s.info.State.FirstSeq
		}
	}
	for i := range msgs {
		at := msgs[i].Position
		q.loss.countDropped(q.loss.through, min(at, first))
		q.loss.through = max(q.loss.through, at)
	}
}
