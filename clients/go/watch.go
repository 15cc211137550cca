package agentstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentstream/schema"
)

// Detail selects how finely deltas are delivered (native §4 R2).
type Detail string

// The details.
const (
	DetailFolded Detail = ""     // deltas merged, ten times a second; the server may drop some for a client that lags
	DetailFull   Detail = "full" // every event of the log as it is
)

// RootLane names the run itself in Options.Children.
const RootLane = "-"

// Options select the events of a Stream. The zero Options select all events from the beginning, in folded
// detail.
type Options struct {
	After    schema.Seq // start after this event; 0 is the beginning
	Detail   Detail
	Children []string // children to see, RootLane for the run itself; empty: all
	Nested   bool     // also the children of Children, at any depth
	Types    []string // types to see, by name or with .* for a family; empty: all
	// Snapshot makes the first event a run.snapshot, the state of the run so far, which Fold reads. It
	// cannot be combined with After.
	Snapshot bool
	// Speed replays stored events with their original timing, this many times faster; 0 is at once.
	Speed float64
	// Refetch makes the Stream connect again, once, before it reports a gap: events that the server dropped
	// for a slow client are still in the log.
	Refetch bool
}

func (o *Options) validate() error {
	if o.After < 0 || o.After > schema.MaxSeq {
		return fmt.Errorf("after %d: %w", o.After, schema.ErrBadCursor)
	}
	if o.Snapshot && o.After > 0 {
		return fmt.Errorf("snapshot with after: %w", schema.ErrBadCursor)
	}
	for _, child := range o.Children {
		if child == RootLane {
			continue
		}
		if err := schema.ValidRunID(child); err != nil {
			return fmt.Errorf("child: %w", err)
		}
	}
	return nil
}

// query returns the parameters of a connection that starts after a position.
func (o *Options) query(after schema.Seq) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("detail", string(o.Detail))
	set("child", strings.Join(o.Children, ","))
	set("types", strings.Join(o.Types, ","))
	if o.Nested {
		set("nested", "true")
	}
	if o.Detail != DetailFull {
		set("bundle", "true") // which arrive taken apart
	}
	if o.Snapshot && after == 0 {
		set("snapshot", "true")
	}
	if o.Speed != 0 {
		set("speed", strconv.FormatFloat(o.Speed, 'g', -1, 64))
	}
	return q
}

// GapError reports that events are missing before the next event, or that the next event covers events that
// were delivered already (First ≤ After). The Stream continues with that event.
type GapError struct {
	After schema.Seq // last event before it
	First schema.Seq // the next event covers First through Seq
	Seq   schema.Seq
	Cause error // the frame with these numbers came and is no event; nil when none came
}

// Error returns the numbers.
func (e *GapError) Error() string {
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("seq %d to %d cannot be read: %v", e.After+1, e.Seq, e.Cause)
	case e.First <= e.After:
		return fmt.Sprintf("overlap: seq %d covers events from %d, and %d was delivered already", e.Seq, e.First, e.After)
	}
	return fmt.Sprintf("gap: seq %d to %d did not come (%d after %d)", e.After+1, e.First-1, e.Seq, e.After)
}

// Unwrap returns the cause.
func (e *GapError) Unwrap() error { return e.Cause }

// ErrClosed reports that a Stream or a Sink was closed.
var ErrClosed = errors.New("closed")

// Stats are the counters of a Stream.
type Stats struct {
	Connections int    // that the server accepted
	Duplicates  int    // events that came again and were skipped
	Gaps        int    // GapErrors that were returned
	PassedOver  int    // frames that were not events and had no seq
	Dropped     int64  // events that the server reports as dropped for this client (native §4 R4)
	DroppedCode string // KAI-STREAM-BUF-0001
}

// Stream reads a run's events after a cursor, over as many connections as that takes. Only one goroutine may
// use it at a time, except for Close.
type Stream struct {
	run  *Run
	opt  Options
	ctx  context.Context // of the whole stream
	stop context.CancelCauseFunc

	last    schema.Seq // newest event that was delivered
	through schema.Seq // up to here nothing more is for this client, by the server
	err     error      // how it ended
	line    []byte
	held    []arrival // the event after a GapError, or the rest of a bundle
	asked   *GapError
	stats   Stats

	conn
	usual, final backoff
	due          time.Time // of the next connection
	ended        bool      // the newest event is a final lifecycle of the run
	confirming   bool      // this connection shows whether that was the end
	fresh        bool      // the token replaces one that was refused, and was not accepted yet
}

// arrival is one decoded frame.
type arrival struct {
	event schema.Event
	line  []byte
}

// Watch returns a stream of the run's events. It connects with the first Next. The stream ends with ctx. To
// watch one child alone, use a handle of the child's id.
func (r *Run) Watch(ctx context.Context, opt Options) *Stream {
	s := &Stream{run: r, opt: opt, last: opt.After}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.usual.giveUp = r.c.cfg.GiveUp
	if err := schema.ValidRunID(r.id); err != nil {
		s.err = err
	} else if err := opt.validate(); err != nil {
		s.err = err
	}
	return s
}

// Next waits for the next event and returns it. Deltas of several children that the server sent as one event
// are returned one by one; they share id, ts, seq and first seq. The error is
//
//   - a *GapError when events are missing before the next one, which the next call returns,
//   - io.EOF when the run is over and everything was delivered,
//   - the cause of ctx when ctx ends first: the Stream can still be used, but its connection is closed, so
//     that a short timeout on each call costs a connection each time,
//   - ErrClosed or the cause of the Stream's own context,
//   - an *Error when the server refuses for good, and the last error when Config.GiveUp is over.
//
// All but the first and the third are final.
func (s *Stream) Next(ctx context.Context) (schema.Event, error) {
	s.line = nil
	if s.err != nil {
		return schema.Event{}, s.err
	}
	if s.ctx.Err() != nil {
		s.close()
		return schema.Event{}, s.finish(context.Cause(s.ctx))
	}
	if len(s.held) > 0 {
		return s.unhold(), nil
	}
	for {
		a, err := s.arrive(ctx)
		if err == nil {
			if a.event.Type != typeBundle {
				return s.deliver(a), nil
			}
			s.held = a.apart()
			return s.unhold(), nil
		}
		if gap := new(GapError); errors.As(err, &gap) {
			if s.again(gap) {
				continue
			}
			s.stats.Gaps++
			if a == nil { // it cannot be read, now or later
				s.through = gap.Seq
			} else {
				s.held = a.apart()
			}
			return schema.Event{}, gap
		}
		if err := s.after(ctx, err); err != nil {
			return schema.Event{}, err
		}
	}
}

// again reports whether a gap is worth another connection, which is so the first time. It closes this one;
// the next starts after the last event that was delivered.
func (s *Stream) again(gap *GapError) bool {
	if !s.opt.Refetch || s.asked != nil && s.asked.After == gap.After {
		return false
	}
	s.asked = gap
	s.close()
	return true
}

// unhold delivers the first event of held.
func (s *Stream) unhold() schema.Event {
	a := &s.held[0]
	if s.held = s.held[1:]; len(s.held) == 0 {
		s.held = nil
	}
	return s.deliver(a)
}

// deliver returns the event. It moves the cursor unless more events of the same frame are held.
func (s *Stream) deliver(a *arrival) schema.Event {
	e := &a.event
	s.moved, s.line = true, a.line
	s.ended = s.ended && !schema.IsFollowUp(e.Type, e.ChildID, e.Payload)
	if len(s.held) > 0 {
		return a.event
	}
	s.last = e.Seq
	if e.ChildID == "" && s.finalState(e) {
		s.ended = true
	}
	return a.event
}

// All returns an iterator over the events until the stream ends. It yields a *GapError between events, with a
// zero event. Any other error is the last that it yields; it does not yield io.EOF.
func (s *Stream) All(ctx context.Context) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		for {
			e, err := s.Next(ctx)
			if err == io.EOF || !yield(e, err) {
				return
			}
			if gap := new(GapError); err != nil && !errors.As(err, &gap) {
				return
			}
		}
	}
}

// Line returns the last event that Next returned, as the server sent it, without a line feed. An event of a
// bundle is encoded as if it had been sent alone. Line is nil after an error, and valid until the next call
// of Next.
func (s *Stream) Line() []byte { return s.line }

// Cursor returns the seq of the newest event that was delivered, and Options.After before the first. A new
// Stream with this After continues here. Of deltas that share a seq, the last one moves the cursor.
func (s *Stream) Cursor() schema.Seq { return s.last }

// HasBuffered reports whether Next will probably return without waiting, so that a caller need not flush yet.
func (s *Stream) HasBuffered() bool { return len(s.held) > 0 || s.complete() }

// Stats returns the counts so far.
func (s *Stream) Stats() Stats { return s.stats }

// Close ends the stream and closes its connection. It may be called at any time, from any goroutine, more
// than once. It always returns nil.
func (s *Stream) Close() error {
	s.stop(ErrClosed)
	return nil
}
