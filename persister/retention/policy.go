package retention

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Never is a duration that does not pass.
const Never = time.Duration(-1)

// Defaults of a Policy.
const (
	DefaultCompleted  = 90 * persister.Day
	DefaultEnded      = 30 * persister.Day
	DefaultTombstones = 365 * persister.Day
	DefaultFeeds      = 30 * persister.Day
	DefaultGrace      = 10 * time.Minute
)

// Policy is the retention of runs. Zero means the default, Never that it does not pass.
type Policy struct {
	Completed  time.Duration // runs in state done; default 90 days
	Ended      time.Duration // runs in state error or aborted; default 30 days
	Rows       time.Duration // rows of archived runs, which are replayed from their blobs afterwards; default Never
	Feeds      time.Duration // events of feeds, but for the newest of each; default 30 days
	Tombstones time.Duration // rows of expired runs, from which a reader with an old cursor learns that; default 365 days
	Grace      time.Duration // marks of deleted runs: longer than a write may be under way; default 10 minutes
}

func (p Policy) withDefaults() Policy {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&p.Completed, DefaultCompleted)
	def(&p.Ended, DefaultEnded)
	def(&p.Rows, Never)
	def(&p.Tombstones, DefaultTombstones)
	def(&p.Feeds, DefaultFeeds)
	def(&p.Grace, DefaultGrace)
	return p
}

// For returns the retention of a run in a final state, Never when it does not expire. Runs in other states never
// expire.
func (p Policy) For(state schema.RunState, o persister.Override) time.Duration {
	d, days := p.Ended, o.Ended
	switch state {
	case schema.StateDone:
		d, days = p.Completed, o.Completed
	case schema.StateError, schema.StateAborted:
	default:
		return Never
	}
	if days != nil {
		d = ofDays(*days)
	}
	return d
}

// maxDays is the greatest number of days that does not mean for ever.
const maxDays = 100 * 365

func ofDays(n int) time.Duration {
	if n > maxDays {
		return Never
	}
	return time.Duration(n) * persister.Day
}

// isPast reports whether a retention that began then has passed.
func isPast(began time.Time, keep time.Duration, now time.Time) bool {
	return keep >= 0 && began.Add(keep).Before(now)
}

// shortest returns the shortest retention of any run, Never when no run expires.
func (p Policy) shortest(overrides map[string]persister.Override) time.Duration {
	least := Never
	take := func(o persister.Override) {
		for _, state := range []schema.RunState{schema.StateDone, schema.StateError} {
			if d := p.For(state, o); d >= 0 && (least < 0 || d < least) {
				least = d
			}
		}
	}
	take(persister.Override{})
	for _, o := range overrides {
		take(o)
	}
	return least
}

var errDuration = errors.New("not a number of days (90d), a duration (36h) or never")

// ParseKeep parses a retention: "90d", "36h" or "never".
func ParseKeep(s string) (time.Duration, error) {
	if s == "never" {
		return Never, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > maxDays {
			return 0, fmt.Errorf("%q: %w", s, errDuration)
		}
		return ofDays(n), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: %w", s, errDuration)
	}
	return d, nil
}
