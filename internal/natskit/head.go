package natskit

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// Run addresses one run's packs in a log of so many partitions.
type Run struct {
	Key        schema.RunKey
	Partitions int
}

// Stream is the run's stream.
func (r Run) Stream() string { return StreamName(schema.Partition(r.Key.Run, r.Partitions)) }

// Filter is the run's filter, the one of the compare-and-set.
func (r Run) Filter() string { return schema.RunFilter(r.Key, r.Partitions) }

// ParsePack reads a stored message as a pack; the error wraps schema.ErrBadPack.
func ParsePack(m Msg) (schema.Pack, error) {
	return schema.ParsePack(m.Subject, m.Header, m.Data, m.Seq)
}

// ReadHead reads a run's head from the leader, and the owner of lane, which is on the lane's own
// newest pack: one read when the run's newest pack is of that lane, two otherwise. A run that the
// stream does not hold is the zero Head, but for what it records of a child (schema.ChildSubject).
func ReadHead(ctx context.Context, nc *nats.Conn, r Run, lane string) (schema.Head, error) {
	m, err := LastFromLeader(ctx, nc, r.Stream(), r.Filter())
	if errors.Is(err, ErrNoMessage) {
		return schema.Head{}, nil
	}
	if err != nil {
		return schema.Head{}, err
	}
	if _, root, ok := schema.ParseChildSubject(m.Subject); ok {
		return schema.Head{Root: root, RootAt: m.Time, Stored: m.Seq}, nil
	}
	p, err := ParsePack(m)
	if err != nil {
		return schema.Head{}, err
	}
	head := p.Head
	if p.Child == lane {
		return head, nil
	}
	head.Lane = schema.Lane{}
	m, err = LastFromLeader(ctx, nc, r.Stream(), schema.Subject(r.Key, lane, r.Partitions))
	if errors.Is(err, ErrNoMessage) {
		return head, nil
	}
	if err == nil {
		p, err = ParsePack(m)
	}
	if err == nil {
		head.Lane = p.Head.Lane
	}
	return head, err
}
