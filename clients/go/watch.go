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

// Options say what of a run is wanted, and from where. The zero Options are everything from the
// beginning, in folded detail.
type Options struct {
	After    schema.Seq // begin behind this event; 0 is the beginning
	Detail   Detail
	Children []string // children to see, RootLane for the run itself; empty: all
	Nested   bool     // Children stand for all that is below them as well
	Types    []string // types to see, by name or with .* for a family; empty: all
	// Snapshot asks for what has happened so far as one first event of type run.snapshot, which Fold
	// reads. Only without After.
	Snapshot bool
	// Speed plays what is stored with its original timing, so many times faster; 0 is at once.
	Speed float64
	// Refetch asks the server again, once, before a gap is reported: what it dropped for a client
	// that lagged is still in the log.
	Refetch bool
}

func (o *Options) validate() error {
	if o.After < 0 || o.After > schema.MaxSeq {
		return fmt.Errorf("after %d: %w", o.After, schema.ErrBadCursor)
	}
	if o.Snapshot && o.After > 0 {
		return fmt.Errorf("a snapshot holds what is before a cursor, and there is one: %w", schema.ErrBadCursor)
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

// query is what the server is asked for behind a position.
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

// GapError reports that events are missing before the next one, or that it stands for some that were
// delivered already (First ≤ After). The Stream goes on with the event behind it.
type GapError struct {
	After schema.Seq // last event before it
	First schema.Seq // first event that the next one stands for; through Seq
	Seq   schema.Seq
	Cause error // the frame with these numbers came and is no event; nil when none came
}

// Error returns the numbers.
func (e *GapError) Error() string {
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("seq %d to %d cannot be read: %v", e.After+1, e.Seq, e.Cause)
	case e.First <= e.After:
		return fmt.Sprintf("overlap: seq %d stands for events from %d, and %d was delivered already", e.Seq, e.First, e.After)
	}
	return fmt.Sprintf("gap: seq %d to %d did not come (%d after %d)", e.After+1, e.First-1, e.Seq, e.After)
}

// Unwrap returns the cause.
func (e *GapError) Unwrap() error { return e.Cause }

// ErrClosed is what Next returns after Close.
var ErrClosed = errors.New("stream is closed")

// Stats count what a Stream met.
type Stats struct {
	Connections int    // that the server accepted
	Duplicates  int    // events that came again and were passed over
	Gaps        int    // GapErrors that were returned
	PassedOver  int    // frames that were no events and named none
	Dropped     int64  // events that the server reports as dropped for this client (native §4 R4)
	DroppedCode string // KAI-STREAM-BUF-0001
}

// Stream is a run's events behind a cursor, over as many connections as it takes. One goroutine at a
// time, except Close.
type Stream struct {
	c    *Client
	run  string
	opt  Options
	ctx  context.Context // of the whole stream
	stop context.CancelCauseFunc

	last    schema.Seq // newest event that was delivered
	through schema.Seq // the server has reported that nothing up to here is for this client
	err     error      // how it ended
	line    []byte
	held    []arrival // waits behind a GapError, or is the rest of a bundle
	asked   *GapError
	stats   Stats

	conn
	usual, final backoff
	due          time.Time // of the next connection
	ended        bool      // the newest event is a final lifecycle of the run
	confirming   bool      // the connection is to say whether that was the end
	fresh        bool      // the token replaces one that was refused, and was not accepted yet
}

// arrival is one decoded frame.
type arrival struct {
	event schema.Event
	line  []byte
}

// Watch returns the stream of a run; it connects with the first Next. ctx bounds the stream's life. A
// child's own stream is Watch of the child's id.
func (c *Client) Watch(ctx context.Context, run string, opt Options) *Stream {
	s := &Stream{c: c, run: run, opt: opt, last: opt.After}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.usual.giveUp = c.cfg.GiveUp
	if err := schema.ValidRunID(run); err != nil {
		s.err = err
	} else if err := opt.validate(); err != nil {
		s.err = err
	}
	return s
}

// Next waits for the next event. Deltas of several children that the server sent as one event come
// one by one; they share id, ts, seq and first seq. It returns
//
//   - a *GapError when events are missing before it; the call after that goes on,
//   - io.EOF when the run is over and everything was delivered,
//   - the cause of ctx when it ends first: the Stream stays whole, but its connection is cut, so that
//     a short limit on each call costs a connection each time,
//   - ErrClosed or the cause of the Stream's own context,
//   - an *Error when the server refuses for good, and what stood in the way when Config.GiveUp is over.
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

// again reports whether a gap is worth a question: the first time that it is met. The connection is left,
// for one behind the last event that was delivered.
func (s *Stream) again(gap *GapError) bool {
	if !s.opt.Refetch || s.asked != nil && s.asked.After == gap.After {
		return false
	}
	s.asked = gap
	s.close()
	return true
}

// unhold delivers the first that is held.
func (s *Stream) unhold() schema.Event {
	a := &s.held[0]
	if s.held = s.held[1:]; len(s.held) == 0 {
		s.held = nil
	}
	return s.deliver(a)
}

// deliver returns the event and moves the cursor, unless more of its frame is held.
func (s *Stream) deliver(a *arrival) schema.Event {
	e := &a.event
	s.moved, s.line = true, a.line
	s.ended = s.ended && !schema.Reopens(e.Type, e.ChildID, e.Payload)
	if len(s.held) > 0 {
		return a.event
	}
	s.last = e.Seq
	if e.ChildID == "" && s.finalState(e) {
		s.ended = true
	}
	return a.event
}

// All returns the events until the stream ends. A *GapError comes between events with a zero event;
// any other error is the last, and io.EOF is left out.
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

// Line is the event that Next gave last, as it came, without a line feed; one that came together with
// others is written as it would have come alone. It is nil after an error,
// and valid until the next call of Next.
func (s *Stream) Line() []byte { return s.line }

// Cursor is the seq of the newest event that was delivered, Options.After before the first: a new
// Stream behind it goes on. Of deltas that came together, and share a seq, it is the last that moves it.
func (s *Stream) Cursor() schema.Seq { return s.last }

// Buffered reports whether Next will probably return an event without waiting: a good time not to flush.
func (s *Stream) Buffered() bool { return len(s.held) > 0 || s.complete() }

// Stats returns the counts so far.
func (s *Stream) Stats() Stats { return s.stats }

// Close ends the stream and lets its connection go. It may be called at any time, from any goroutine,
// more than once.
func (s *Stream) Close() error {
	s.stop(ErrClosed)
	return nil
}
