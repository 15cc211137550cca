package natskit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/schema"
)

// Hold asks the writers of a run to wait for one of them, and refuses what they have sent for an older head. Nothing is
// done while they wait for another one; nor when the newest pack is not of a writer that waits (schema.PoliteWriter),
// because an old program takes the message for something else.
func Hold(ctx context.Context, nc *nats.Conn, run RunAddress, by string) error {
	pack, note, err := Newest(ctx, nc, run)
	if err != nil {
		return fmt.Errorf("hold %s: %w", run.Key, err)
	}
	_, holder := holdOf(note)
	if pack.Seq == 0 || OfChild(pack) || holder != "" && holder != by {
		return nil
	}
	p, err := ParsePack(pack)
	if err != nil || !strings.HasPrefix(p.Writer, schema.PoliteWriter) {
		return err
	}
	return putHold(ctx, nc, run, pack.Seq, by)
}

// Release ends a Hold, unless something was stored after it.
func Release(ctx context.Context, nc *nats.Conn, run RunAddress, by string) error {
	pack, note, err := Newest(ctx, nc, run)
	if err != nil {
		return fmt.Errorf("release %s: %w", run.Key, err)
	}
	if _, holder := holdOf(note); holder != by {
		return nil
	}
	err = putHold(ctx, nc, run, pack.Seq, "", jetstream.WithExpectLastSequenceForSubject(note.Seq, run.Filter()))
	if IsRefused(err) {
		return nil
	}
	return err
}

func putHold(ctx context.Context, nc *nats.Conn, run RunAddress, after uint64, by string,
	opts ...jetstream.PublishOpt) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("hold %s: %w", run.Key, err)
	}
	m := nats.NewMsg(schema.HoldSubject(run.Key, run.Partitions))
	m.Header.Set(schema.HeaderHold, strconv.FormatUint(after, 10)+" "+by)
	opts = append(opts, jetstream.WithExpectStream(run.Stream()), jetstream.WithRetryAttempts(0))
	if _, err = js.PublishMsg(ctx, m, opts...); err != nil {
		return fmt.Errorf("hold %s: %w", run.Key, err)
	}
	return nil
}

// holdOf reads the message under a schema.HoldSubject.
func holdOf(m Msg) (after uint64, by string) {
	if v := m.Header[schema.HeaderHold]; len(v) > 0 {
		var position string
		position, by, _ = strings.Cut(v[0], " ")
		after, _ = strconv.ParseUint(position, 10, 64) // 0 is before every pack
	}
	return after, by
}

func isHold(m Msg) bool {
	run, root, ok := schema.ParseChildSubject(m.Subject)
	return ok && root == run.Run
}

// Newest returns the newest message of a run from the leader that is not about who holds it, and the newest that is,
// when it is after that. Seq is 0 of what is not there.
func Newest(ctx context.Context, nc *nats.Conn, run RunAddress) (m, hold Msg, err error) {
	m, err = LastFromLeader(ctx, nc, run.Stream(), run.Filter())
	if errors.Is(err, ErrNoMessage) {
		return Msg{}, Msg{}, nil
	}
	if err != nil || !isHold(m) {
		return m, Msg{}, err
	}
	hold, m = m, Msg{}
	for at, _ := holdOf(hold); ; at++ {
		next, err := NextFromLeader(ctx, nc, run.Stream(), run.Filter(), max(at, 1))
		switch {
		case errors.Is(err, ErrNoMessage): // of a leader who has not got the hold, or that was removed
			return Msg{}, Msg{}, fmt.Errorf("newest of %s before %d: %w", run.Key, hold.Seq, schema.ErrUnavailable)
		case err != nil || next.Seq >= hold.Seq:
			return m, hold, err
		case !isHold(next):
			m = next
		}
		at = next.Seq
	}
}
