package natskit

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// Adopt makes the log say that the run's id is that of a child of root, unless the run has packs: then it is a run of
// its own, and stays that. Of several roots the last one counts. What the log says already is written anew once it is
// older than again, before it leaves the log's window. Many may do so at once. It returns the position of what
// says so, 0 when the run has packs.
func Adopt(ctx context.Context, nc *nats.Conn, run RunAddress, root string, again time.Duration) (stored uint64,
	err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("adopt %s: %w", run.Key, err)
	}
	first := true
	err = Repeat(ctx, nc, func(ctx context.Context, wait time.Duration) error {
		var after uint64
		if !first { // nearly all ids are new: the compare-and-set says so, and saves the look
			var packs, said bool
			var err error
			after, packs, said, err = ofChild(ctx, nc, run, root, again)
			if err != nil || packs || said {
				if said {
					stored = after
				}
				return err
			}
		}
		first = false
		once, cancel := context.WithTimeout(ctx, min(2*wait, Try))
		defer cancel()
		ack, err := js.Publish(once, schema.ChildSubject(run.Key, root, run.Partitions), nil,
			jetstream.WithExpectLastSequenceForSubject(after, run.Filter()), jetstream.WithExpectStream(run.Stream()),
			jetstream.WithRetryAttempts(0))
		if IsRefused(err) {
			return errAgain // now there is what was first
		}
		if err == nil {
			stored = ack.Sequence
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("adopt %s: %w", run.Key, err)
	}
	return stored, nil
}

// ofChild looks at what the log has newest of a run: packs, or what said not long ago that it is a child of root.
func ofChild(ctx context.Context, nc *nats.Conn, run RunAddress, root string, again time.Duration) (after uint64, packs,
	said bool, err error) {
	m, note, err := Newest(ctx, nc, run)
	if err != nil || m.Seq == 0 {
		return note.Seq, false, false, err
	}
	_, is, ok := schema.ParseChildSubject(m.Subject)
	return max(m.Seq, note.Seq), !ok, ok && is == root && time.Since(m.Time) < again, nil
}

// OfChild reports whether a message of a run is what the log says of a child, or of who holds it, and no pack
// (schema.ChildSubject, schema.HoldSubject).
func OfChild(m Msg) bool {
	_, _, ok := schema.ParseChildSubject(m.Subject)
	return ok
}

// NextPack is NextFromLeader for the run's first pack at a position or behind it.
func NextPack(ctx context.Context, nc *nats.Conn, run RunAddress, seq uint64) (Msg, error) {
	for {
		m, err := NextFromLeader(ctx, nc, run.Stream(), run.Filter(), seq)
		if err != nil || !OfChild(m) {
			return m, err
		}
		seq = m.Seq + 1
	}
}
