package persister

import (
	"errors"
	"log/slog"
	"time"

	"agentstream/schema"
)

// Config configures a Persister. Queues and Store must be set. Zero means the default in all other fields.
type Config struct {
	Queues  []Queue // one per partition of the log
	Store   Store
	Refill  Refiller // completes a log that is behind the store; nil: such a partition is not stored any further
	Salvage Salvager // saves what objects have after a loss; nil: nothing is saved
	Alone   bool     // no other process stores this log: nothing is shared

	Role     string // what the process is called in its log; default persister
	Replaces bool   // the store reads what has left the log from elsewhere: that it leaves the log is no alarm

	BatchEvents int           // rows per transaction, at most; default 8,000. A single pack may exceed it
	BatchStart  int           // rows per transaction at first; default 2,000, or BatchEvents if that is less
	BatchBytes  int           // approximate bytes of one fetch; default 4 MiB
	HeldBytes   int           // approximate bytes held in memory, shared equally by the queues; default 64 MiB
	Target      time.Duration // faster transactions may grow, slower ones shrink; default 250 ms
	// about the time between two fetches while batches are small, with Alone twice that when each has many rows;
	// default 1 s, negative: none
	Linger  time.Duration
	Attempt time.Duration // time for one attempt to store a batch; default 60 s
	// after failing for this long a batch is released, and read again when the store answers; default 30 s
	Hold       time.Duration
	Grace      time.Duration // time for the last batch after the context of Run has ended; default 10 s
	RetryMin   time.Duration // first pause after a failure, doubled each time; default 100 ms
	RetryMax   time.Duration // longest pause; default 10 s
	LagEvery   time.Duration // interval between two reads of a queue's lag; default 10 s
	ShareEvery time.Duration // interval between two reads of the offsets' owners; default 2 s
	// a partition whose offset has not moved for this long may be taken by any process; default 5 s
	ShareStale time.Duration

	Logger *slog.Logger // nil discards
	Hooks  Hooks
	Now    func() time.Time // default time.Now
}

// Hooks are called about the work, for metrics. Nil hooks are skipped. They are called from the pipelines' goroutines
// and must not block.
type Hooks struct {
	// Stored is called after each commit.
	Stored func(stream string, s Stored)
	// DeadLetter is called for each dead letter, after it is stored.
	DeadLetter func(stream, reason string)
	// Conflict is called for each row whose content differs from the stored one: an alarm.
	Conflict func(stream string, key schema.RunKey, seq schema.Seq)
	// Retrying is called after each failed attempt, with the time of the first failure of this
	// outage and the pause until the next attempt.
	Retrying func(stream string, err error, since time.Time, pause time.Duration)
	// Recovered is called when an outage has ended.
	Recovered func(stream string, outage time.Duration)
	// Lag is called every LagEvery, with the state of the pipeline, whose LagAt is zero when the queue did not return
	// its lag.
	Lag func(s Status)
	// Lost is called when the log has dropped messages that were never stored: an alarm.
	Lost func(stream string, messages uint64)
}

// Stored is one committed transaction.
type Stored struct {
	Messages int
	Inserted int // rows that were new
	Repeated int // rows that were stored before
	Dropped  int // rows at or below their run's floor, which are not written
	Took     time.Duration
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	size := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	size(&c.BatchEvents, 8000)
	size(&c.BatchStart, min(2000, c.BatchEvents))
	size(&c.BatchBytes, 4<<20)
	size(&c.HeldBytes, 64<<20)
	def(&c.Target, 250*time.Millisecond)
	def(&c.Hold, 30*time.Second)
	def(&c.Linger, time.Second)
	def(&c.Attempt, time.Minute)
	def(&c.Grace, 10*time.Second)
	def(&c.RetryMin, 100*time.Millisecond)
	def(&c.RetryMax, 10*time.Second)
	def(&c.LagEvery, 10*time.Second)
	def(&c.ShareEvery, 2*time.Second)
	def(&c.ShareStale, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Role == "" {
		c.Role = "persister"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	if len(c.Queues) == 0 || c.Store == nil {
		return errors.New("persister: config needs queues and a store")
	}
	if c.BatchEvents < 1 || c.BatchBytes < 1 || c.HeldBytes < 1 || c.Target < 0 || c.Hold < 0 ||
		c.Attempt < 0 || c.Grace < 0 || c.LagEvery < 0 || c.ShareEvery < 0 || c.ShareStale < 0 {
		return errors.New("persister: bounds must be positive")
	}
	if c.BatchStart < 1 || c.BatchStart > c.BatchEvents {
		return errors.New("persister: BatchStart must be from 1 to BatchEvents")
	}
	if c.RetryMin < 0 || c.RetryMax < c.RetryMin {
		return errors.New("persister: RetryMax is below RetryMin")
	}
	return nil
}
