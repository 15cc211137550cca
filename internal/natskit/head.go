package natskit

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"agentstream/schema"
)

// RunAddress addresses one run's packs in a log of so many partitions.
type RunAddress struct {
	Key        schema.RunKey
	Partitions int
}

// Stream is the run's stream.
func (r RunAddress) Stream() string { return StreamName(schema.Partition(r.Key.Run, r.Partitions)) }

// Filter is the run's filter, the one of the compare-and-set.
func (r RunAddress) Filter() string { return schema.RunFilter(r.Key, r.Partitions) }

// ParsePack reads a stored message as a pack; the error wraps schema.ErrBadPack.
func ParsePack(m Msg) (schema.Pack, error) {
	return schema.ParsePack(m.Subject, m.Header, m.Data, m.Seq)
}

// ReadHead reads a run's head from the leader, and the owner of lane, which is on the lane's own
// newest pack: one read when the run's newest pack is of that lane, two otherwise, and some more while the run is held.
// A run that the stream does not hold is the zero Head, but for what it records of a child (schema.ChildSubject).
func ReadHead(ctx context.Context, nc *nats.Conn, r RunAddress, lane string) (schema.Head, error) {
	m, note, err := Newest(ctx, nc, r)
	if err != nil {
		return schema.Head{}, err
	}
	if _, root, ok := schema.ParseChildSubject(m.Subject); ok {
		return schema.Head{Root: root, RootAt: m.Time.UnixMilli(), Stored: m.Seq}, nil
	}
	after := schema.Head{Stored: note.Seq}
	_, after.Held = holdOf(note)
	if m.Seq == 0 {
		return after, nil
	}
	p, err := ParsePack(m)
	if err != nil {
		return schema.Head{}, err
	}
	head := p.Head
	head.Stored, head.Held = max(head.Stored, after.Stored), after.Held
	if p.Child == lane {
		return head, nil
	}
	head.Lane, err = lastOfLane(ctx, nc, r, lane)
	return head, err
}

// ReadLanes returns the owners of lanes, in their order: of one from the leader, and of many by two reads and one more
// for each 1,000 lanes. A replica answers those; what it answers counts when it has the run's newest pack of the
// leader, or a newer one.
func ReadLanes(ctx context.Context, nc *nats.Conn, r RunAddress, lanes []string) ([]schema.Lane, error) {
	owners := make([]schema.Lane, len(lanes))
	if len(lanes) == 1 {
		lane, err := lastOfLane(ctx, nc, r, lanes[0])
		owners[0] = lane
		return owners, err
	}
	newest, _, err := Newest(ctx, nc, r)
	if err != nil {
		return nil, err
	}
	if newest.Seq == 0 || OfChild(newest) {
		return owners, nil // the run has no pack
	}
	for at := 0; at < len(lanes); at += lanesPerRead {
		group := lanes[at:min(at+lanesPerRead, len(lanes))]
		if err := readLanes(ctx, nc, r, newest, group, owners[at:]); err != nil {
			return nil, err
		}
	}
	return owners, nil
}

// Bounds of one read of lanes: the server answers 1,024 subjects, and sends whole packs.
const (
	lanesPerRead = 1000
	lanesBytes   = 4 << 20
)

// readLanes sets owners of lanes. What does not fit the answer, or is not in it because the replica is behind, is read
// one by one.
func readLanes(ctx context.Context, nc *nats.Conn, r RunAddress, newest Msg, lanes []string,
	owners []schema.Lane) error {
	subjects := map[string]int{}
	req := BatchRequest{MultiLast: []string{newest.Subject}, MaxBytes: lanesBytes}
	for i, lane := range lanes {
		subject := schema.Subject(r.Key, lane, r.Partitions)
		subjects[subject] = i
		if subject != newest.Subject {
			req.MultiLast = append(req.MultiLast, subject)
		}
	}
	page, err := ReadPage(ctx, nc, r.Stream(), req)
	if err != nil {
		return err
	}
	current := false
	for _, m := range page.Msgs {
		current = current || m.Subject == newest.Subject && m.Seq >= newest.Seq
		i, asked := subjects[m.Subject]
		if !asked {
			continue
		}
		p, err := ParsePack(m)
		if err != nil {
			return err
		}
		owners[i] = p.Head.Lane
	}
	if current && !page.More {
		return nil
	}
	for i, lane := range lanes {
		if owners[i], err = lastOfLane(ctx, nc, r, lane); err != nil {
			return err
		}
	}
	return nil
}

// lastOfLane reads the owner of a lane from the leader.
func lastOfLane(ctx context.Context, nc *nats.Conn, r RunAddress, lane string) (schema.Lane, error) {
	m, err := LastFromLeader(ctx, nc, r.Stream(), schema.Subject(r.Key, lane, r.Partitions))
	if errors.Is(err, ErrNoMessage) {
		return schema.Lane{}, nil
	}
	if err != nil {
		return schema.Lane{}, err
	}
	p, err := ParsePack(m)
	return p.Head.Lane, err
}
