package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// StreamReport is the result of the comparison of one partition.
type StreamReport struct {
	Name     string `json:"stream"`
	First    uint64 `json:"first"` // position of its first message
	Last     uint64 `json:"last"`
	Stored   uint64 `json:"stored"` // the store's offset
	Refills  uint64 `json:"refills"`
	Behind   string `json:"behind,omitempty"`   // why the log is behind what is stored
	Dropped  uint64 `json:"dropped,omitempty"`  // messages that the log has dropped before they were stored
	Unstored uint64 `json:"unstored,omitempty"` // messages that are not stored yet
}

// Gap is a range of one run's events that the log, or the log and the archive, lack.
type Gap struct {
	Tenant  string     `json:"tenant"`
	Run     string     `json:"run"`
	From    schema.Seq `json:"from"`
	Through schema.Seq `json:"through"`
	Lost    bool       `json:"lost"` // the archive lacks them too
}

// ExamineStreams compares each partition of the log with the store's offset.
func ExamineStreams(ctx context.Context, js jetstream.JetStream, store Offsets) ([]StreamReport, error) {
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: examine: %w", err)
	}
	offsets, err := store.Offsets(ctx)
	if err != nil {
		return nil, fmt.Errorf("natsjs: examine: %w", err)
	}
	stored := make(map[string]persister.Offset)
	for _, o := range offsets {
		stored[o.Stream] = o.Offset
	}
	streams := make([]StreamReport, n)
	for p := range n {
		if streams[p], err = examineStream(ctx, js, natskit.StreamName(p), stored[natskit.StreamName(p)]); err != nil {
			return nil, fmt.Errorf("natsjs: examine %s: %w", natskit.StreamName(p), err)
		}
	}
	return streams, nil
}

func examineStream(ctx context.Context, js jetstream.JetStream, name string, stored persister.Offset) (StreamReport,
	error) {
	s, err := readState(ctx, js, name)
	if err != nil {
		return StreamReport{}, err
	}
	st := &s.info.State
	out := StreamReport{Name: name, First: st.FirstSeq, Last: st.LastSeq, Stored: stored.Position,
		Refills: stored.Generation}
	switch _, err := s.compare(ctx, js.Conn(), stored); {
	case errors.Is(err, persister.ErrBehind):
		out.Behind = err.Error()
	case err != nil:
		return out, err
	case st.LastSeq > 0: // also when none of them is left
		out.Dropped = st.FirstSeq - 1 - min(st.FirstSeq-1, stored.Position)
		out.Unstored = st.LastSeq - min(st.LastSeq, max(stored.Position, st.FirstSeq-1))
	}
	return out, nil
}

// ExamineRuns iterates over the gaps of the runs that were stored since t.
func ExamineRuns(ctx context.Context, js jetstream.JetStream, log RefillLog, archive Archive,
	t time.Time) iter.Seq2[Gap, error] {
	return func(yield func(Gap, error) bool) {
		n, err := natskit.Partitions(ctx, js)
		if err != nil {
			yield(Gap{}, err)
			return
		}
		for key, err := range archive.RunsChangedSince(ctx, t) {
			var gap Gap
			var found bool
			if err == nil {
				gap, found, err = examineRun(ctx, js, log, archive, natskit.RunAddress{Key: key, Partitions: n})
			}
			if err != nil {
				yield(Gap{}, fmt.Errorf("natsjs: examine %s: %w", key, err))
				return
			}
			if found && !yield(gap, nil) {
				return
			}
		}
	}
}

func examineRun(ctx context.Context, js jetstream.JetStream, log RefillLog, archive Archive,
	run natskit.RunAddress) (Gap, bool, error) {
	head, err := log.Head(ctx, run.Key, "")
	if err != nil || !head.HasEvents() {
		return Gap{}, false, err
	}
	stored, err := archive.Head(ctx, run.Key, "")
	if err != nil {
		return Gap{}, false, err
	}
	gap := Gap{Tenant: run.Key.Tenant, Run: run.Key.Run, From: head.Last + 1, Through: stored.Last}
	if head.Last < stored.Last {
		return gap, true, nil
	}
	// The events after the archive must follow it without a gap.
	first, err := firstBehind(ctx, js, run, stored.Last)
	gap.From, gap.Through, gap.Lost = stored.Last+1, first-1, true
	return gap, err == nil && first > stored.Last+1, err
}

// firstBehind returns the first seq of the run's oldest pack in the log that ends after last, 0 when there is none.
func firstBehind(ctx context.Context, js jetstream.JetStream, run natskit.RunAddress, last schema.Seq) (schema.Seq,
	error) {
	for m, err := range messagesOf(ctx, js.Conn(), run) {
		if err != nil {
			return 0, err
		}
		if p, err := natskit.ParsePack(m); err == nil && p.Last() > last {
			return p.First, nil
		}
	}
	return 0, nil
}
