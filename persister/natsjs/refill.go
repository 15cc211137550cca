package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// RefillLog is the log to which a Refill writes: producers/natsjs has one.
type RefillLog interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error)
}

// Archive reads what is stored: rows and objects.
type Archive interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	// RunsChangedSince iterates over the runs of all tenants of which events were stored at or after t.
	RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error]
}

// RefillConfig configures a Refill. All fields but Logger, Done and Missing are required.
type RefillConfig struct {
	Log     RefillLog // without Compare, which would wait for the Refill
	Archive Archive
	Purger  *Purger
	Logger  *slog.Logger                                       // nil discards
	Done    func(key schema.RunKey, from, through schema.Seq)  // called for events that were written back; may be nil
	Missing func(key schema.RunKey, after, through schema.Seq) // called for events that the archive lacks too; may be nil
}

// Refill writes stored events back to a log that lacks them: after a power cut, or when its folder was restored from
// a copy. It skips runs of which the log has nothing: they are read from the archive and continue after it. Several
// processes may run it at the same time, and it may be run again after it was interrupted: every pack is appended by
// compare-and-set after the head of its run.
type Refill struct {
	cfg RefillConfig
	js  jetstream.JetStream
	nc  *nats.Conn
}

// NewRefill returns a Refill on the log that js holds.
func NewRefill(js jetstream.JetStream, cfg RefillConfig) *Refill {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Refill{cfg: cfg, js: js, nc: js.Conn()}
}

// Bounds of the difference between clocks. Runs that are compared without need cost little time.
const (
	stepOfClock = time.Minute // of the log's clock, at a restart
	skewOfStore = time.Hour   // between the log's clock and the store's
)

// Refill implements persister.Refiller. Messages that were appended since the log came back, by a writer that does
// not use Compare, are after the offset that it returns.
func (r *Refill) Refill(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	at, err := r.refill(ctx, stored)
	if err != nil {
		return at, fmt.Errorf("natsjs: write back what %s lacks: %w", stored.Stream, err)
	}
	return at, nil
}

func (r *Refill) refill(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	s, err := readState(ctx, r.js, stored.Stream)
	if err != nil {
		return stored, err
	}
	at := persister.Offset{Stream: stored.Stream, Identity: s.identity}
	if s.info.State.Msgs == 0 {
		at.Position = s.info.State.LastSeq
		return at, nil
	}
	if s.identity == stored.Identity && !stored.StoredAt.IsZero() {
		if at.Position, at.StoredAt, err = r.newestBefore(ctx, s, stored.StoredAt.Add(-stepOfClock)); err != nil {
			return at, err
		}
	}
	since := s.info.State.FirstTime
	if !at.StoredAt.IsZero() {
		since = at.StoredAt
	}
	return at, r.refillRuns(ctx, stored.Stream, since.Add(-skewOfStore))
}

// newestBefore returns the newest message of the stream that was stored before t, position 0 when there is none.
// Messages are in the order of their times.
func (r *Refill) newestBefore(ctx context.Context, s *state, t time.Time) (position uint64, stored time.Time,
	err error) {
	low, high := s.info.State.FirstSeq, s.info.State.LastSeq+1 // the range of the first message that is not before t
	for low < high {
		middle := low + (high-low)/2
		m, err := natskit.NextFromLeader(ctx, r.nc, s.info.Config.Name, ">", middle)
		switch {
		case errors.Is(err, natskit.ErrNoMessage):
			high = middle
		case err != nil:
			return 0, time.Time{}, err
		case m.Time.Before(t):
			position, stored, low = m.Seq, m.Time, m.Seq+1
		default:
			high = middle
		}
	}
	return position, stored, nil
}

// refillRuns refills the runs of a stream that were stored since a time.
func (r *Refill) refillRuns(ctx context.Context, stream string, since time.Time) error {
	var keys []schema.RunKey
	looked, events := 0, 0
	group := func() error {
		holding, err := r.cfg.Purger.findInLog(ctx, keys)
		looked, keys = looked+len(keys), keys[:0]
		for _, key := range holding {
			if err != nil {
				return err
			}
			var n int
			n, err = r.run(ctx, key)
			events += n
		}
		return err
	}
	for key, err := range r.cfg.Archive.RunsChangedSince(ctx, since) {
		if err != nil {
			return err
		}
		if natskit.StreamName(schema.Partition(key.Run, r.cfg.Purger.partitions)) != stream {
			continue
		}
		if keys = append(keys, key); len(keys) == holdingGroup {
			if err := group(); err != nil {
				return err
			}
		}
	}
	if err := group(); err != nil {
		return err
	}
	r.cfg.Logger.Warn("persister: the log has back what it lacked", "stream", stream, "runs_looked_at", looked,
		"events", events)
	return nil
}

// run appends the events that the archive has of a run after the log's head, and returns their number.
func (r *Refill) run(ctx context.Context, key schema.RunKey) (events int, err error) {
	for {
		stored, err := r.cfg.Archive.Head(ctx, key, "")
		if err != nil {
			return events, err
		}
		head, err := r.cfg.Log.Head(ctx, key, "")
		if err != nil || head.Last >= stored.Last {
			return events, err
		}
		n, err := r.behind(ctx, key, head, stored.Last)
		events += n
		if err != nil && !errors.Is(err, schema.ErrConflict) {
			return events, err
		}
		if err == nil && n == 0 { // a gap, which a second read does not fill
			r.missing(key, head.Last, stored.Last)
			return events, nil
		}
	}
}

// behind appends packs after head until the log has all of them, the archive has no more, or another writer appends.
func (r *Refill) behind(ctx context.Context, key schema.RunKey, head schema.Head, through schema.Seq) (events int,
	err error) {
	after := head.Stored
	lanes := make(map[string]schema.Lane)
	for p, err := range r.cfg.Archive.Packs(ctx, key, head.Last, through) {
		if err != nil {
			return events, err
		}
		if p.First != head.Last+schema.Seq(events)+1 {
			return events, nil
		}
		lane, ok := lanes[p.Child]
		if !ok {
			of, err := r.cfg.Archive.Head(ctx, key, p.Child)
			if err != nil {
				return events, err
			}
			lane = of.Lane
			lanes[p.Child] = lane
		}
		p.Writer, p.Head.Lane = refillWriter, lane
		if after, err = r.cfg.Log.Append(ctx, &p, after); err != nil {
			return events, err
		}
		events += p.Count
		if r.cfg.Done != nil {
			r.cfg.Done(key, p.First, p.Last())
		}
	}
	return events, nil
}

// refillWriter is the writer of refilled packs.
const refillWriter = "refill"

func (r *Refill) missing(key schema.RunKey, after, through schema.Seq) {
	r.cfg.Logger.Error("persister: events are neither in the log nor in the archive: they are lost",
		"run", key.String(), "after", after, "through", through)
	if r.cfg.Missing != nil {
		r.cfg.Missing(key, after, through)
	}
}
