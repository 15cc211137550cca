package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// Heads returns the newest positions of runs in the archive.
type Heads interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
}

// FindLostRuns returns, for the runs of which a stream has messages, the events between those that the archive has and
// the first that the stream has: they are in neither. It makes one request for each run, and is meant for the time
// after a loss. Before what the stream has is stored, it finds everything; afterwards the archive's head is behind the
// gap.
func FindLostRuns(ctx context.Context, js jetstream.JetStream, archive Heads, stream string) (lost []persister.RunLoss,
	err error) {
	fail := func(err error) ([]persister.RunLoss, error) {
		return nil, fmt.Errorf("natsjs: lost runs of %s: %w", stream, err)
	}
	partitions, err := natskit.Partitions(ctx, js)
	if err != nil {
		return fail(err)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fail(err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return fail(err)
	}
	known := make(map[schema.RunKey]bool)
	for subject := range info.State.Subjects {
		key, _, err := schema.ParseSubject(subject)
		if err != nil || known[key] { // or the record of a child
			continue
		}
		known[key] = true
		loss, found, err := findLoss(ctx, js, archive, natskit.RunAddress{Key: key, Partitions: partitions})
		if err != nil {
			return fail(err)
		}
		if found {
			lost = append(lost, loss)
		}
	}
	return lost, nil
}

// findLoss returns what is lost of one run. The second result is false when nothing is.
func findLoss(ctx context.Context, js jetstream.JetStream, archive Heads, run natskit.RunAddress) (persister.RunLoss,
	bool, error) {
	stored, err := archive.Head(ctx, run.Key, "")
	if err != nil {
		return persister.RunLoss{}, false, err
	}
	m, err := natskit.NextPack(ctx, js.Conn(), run, 1)
	if errors.Is(err, natskit.ErrNoMessage) { // it was removed meanwhile
		return persister.RunLoss{}, false, nil
	}
	if err != nil {
		return persister.RunLoss{}, false, err
	}
	p, err := natskit.ParsePack(m)
	if err != nil { // a dead letter of the persister's
		return persister.RunLoss{}, false, nil
	}
	loss := persister.RunLoss{Key: run.Key, First: stored.Last + 1, Last: p.First - 1, Reason: persister.LossDropped}
	return loss, p.First > stored.Last+1, nil
}
