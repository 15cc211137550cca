package producers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"agentstream/schema"
)

// Once is what session.created says of a run that is answered at most once (docs/dialects/runtime.md).
type Once struct {
	Once  bool          // the run is over after one turn, and a turn that was cut is not begun again
	Began time.Time     // time of session.created
	First time.Duration // from Began to the first delta; 0: no deadline. So of the others
	Idle  time.Duration // between two deltas
	Total time.Duration // from Began to the end
}

// ReadOnce returns what the first event of a run says. Of a run that is answered more than once there are no deadlines.
func ReadOnce(first *schema.Event) (o Once) {
	var f struct {
		Once      bool `json:"once"`
		Deadlines struct {
			First int64 `json:"first_ms"`
			Idle  int64 `json:"idle_ms"`
			Total int64 `json:"total_ms"`
		} `json:"deadlines"`
	}
	if first == nil || first.Type != schema.TypeSessionCreated || json.Unmarshal(first.Payload, &f) != nil || !f.Once {
		return o
	}
	span := func(ms int64) time.Duration {
		return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	return Once{Once: true, Began: timeOf(first), First: span(f.Deadlines.First), Idle: span(f.Deadlines.Idle),
		Total: span(f.Deadlines.Total)}
}

// timeOf returns the time of an event, zero when it has none.
func timeOf(e *schema.Event) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, e.TS) // checked before it was stored
	return t
}

// Reasons are the words of a protocol for why a run that is answered once was ended in the place of its writer. The
// reason of the run's end begins with the word and a colon, so that the protocol knows it again; "" adds nothing.
type Reasons struct {
	Timeout string // a deadline has passed
	Broken  string // the answer was cut
}

// TimeoutReason returns the reason of a run of which a deadline has passed.
func (r Reasons) TimeoutReason(why string) string { return withWord(r.Timeout, why) }

// CutReason returns the reason of a run whose answer was cut.
func (r Reasons) CutReason(why string) string { return withWord(r.Broken, why) }

// withWord puts a word before a reason.
func withWord(word, why string) string {
	if word == "" {
		return why
	}
	return word + ": " + why
}

// Due returns when the next deadline passes, and why the run ends then, for Reasons.TimeoutReason. delta is the time of
// the newest delta, zero for none. at is zero when there is no deadline.
func (o Once) Due(delta time.Time) (at time.Time, why string) {
	next := func(from time.Time, d time.Duration, what string) {
		if d <= 0 || from.IsZero() {
			return
		}
		if t := from.Add(d); at.IsZero() || t.Before(at) {
			at, why = t, fmt.Sprintf("%s %v", what, d)
		}
	}
	if delta.IsZero() {
		next(o.Began, o.First, "no delta within")
	} else {
		next(delta, o.Idle, "no delta for")
	}
	next(o.Began, o.Total, "not over within")
	return at, why
}

// IsProgress reports whether an event of a type is one that deadlines wait for: a piece of the answer, or
// progress.
func IsProgress(typ string) bool {
	return strings.HasSuffix(typ, ".delta") || typ == schema.TypeProgress || typ == schema.TypeTaskStart ||
		typ == schema.TypeTaskEnd
}

// Expire ends a run of which a deadline has passed at now, in state error, by an append that must be stored right after
// what was read: whoever writes first of all that try has ended it, and its writer gets ErrFenced. next is when to ask
// again; zero: never, the run is over or has no deadline. cfg has Log, Key and Reasons. The events are read from the
// log alone.
func Expire(ctx context.Context, cfg Config, now time.Time) (ended bool, next time.Time, err error) {
	var (
		open  Open
		once  Once
		delta time.Time
		last  schema.Seq
	)
	for p, err := range cfg.Log.Since(ctx, cfg.Key, 0) {
		if err != nil {
			return false, next, fmt.Errorf("producers: look at the deadlines of %s: %w", cfg.Key, err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return false, next, fmt.Errorf("producers: look at the deadlines of %s: %w", cfg.Key, err)
			}
			e, err := r.Event()
			if err != nil {
				return false, next, fmt.Errorf("producers: look at the deadlines of %s: event %d: %w", cfg.Key, r.Seq, err)
			}
			if last = e.Seq; last == 1 {
				if once = ReadOnce(&e); !once.Once {
					return false, next, nil
				}
			} else if IsProgress(e.Type) && e.ChildID == "" {
				delta = timeOf(&e)
			}
			open.See(&e)
		}
	}
	at, why := once.Due(delta)
	switch idle := now.Add(once.Idle); {
	case open.State("").Final():
		return false, next, nil
	case once.Idle > 0 && (at.IsZero() || now.Before(at) && idle.Before(at)):
		return false, idle, nil // a delta may come, and has a deadline after it
	case at.IsZero() || now.Before(at):
		return false, at, nil
	}
	if ended, err = closeRun(ctx, cfg, &open, last,
		Closing{Failed: true, Reason: cfg.Reasons.TimeoutReason(why), Actor: "system"}); !ended && err == nil {
		next = now // somebody has written meanwhile
	}
	return ended, next, err
}

// Expire is the function of this name, for a run in the appender's log.
func (a *Appender) Expire(ctx context.Context, key schema.RunKey, words Reasons) (ended bool, next time.Time,
	err error) {
	return Expire(ctx, Config{Log: a.cfg.Log, Key: key, Archive: a.cfg.Archive, Reasons: words,
		Redact: a.cfg.Redact, Seal: a.cfg.Seal, Now: a.cfg.Now, Logger: a.cfg.Logger, Timeout: a.cfg.Timeout}, a.cfg.Now())
}

// closeRun closes all that is open in a run, if nothing was written after last. Where the run has children, the
// first event takes the run over, and the rest follows.
func closeRun(ctx context.Context, cfg Config, open *Open, last schema.Seq, c Closing) (bool, error) {
	pub, err := New(cfg)
	if err != nil {
		return false, err
	}
	defer func() { _ = pub.Close(ctx) }() // what became of its events is known
	taken := CommandsTaken("", last, "")
	taken.Actor = c.Actor
	events := append([]schema.Event{taken}, open.Close(c)...)
	first := len(events)
	for i := range events {
		if events[i].ChildID != "" {
			first = 1
		}
	}
	for i := range events[:first] {
		events[i].Seq = last + 1 + schema.Seq(i)
	}
	if _, err = pub.Append(ctx, events[:first]...); err == nil && first < len(events) {
		_, err = pub.Append(ctx, events[first:]...)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, schema.ErrEnded), errors.Is(err, ErrFenced), errors.Is(err, schema.ErrSeqMismatch):
		return false, nil
	}
	return false, fmt.Errorf("producers: end %s: %w", cfg.Key, err)
}
