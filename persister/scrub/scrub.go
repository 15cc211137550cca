package scrub

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"agentstream/persister"
	"agentstream/persister/deadletter"
	"agentstream/schema"
	"agentstream/schema/redact"
)

// RunStore keeps the rows of runs. Both database stores are one.
type RunStore interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
	Rewrite(ctx context.Context, w persister.Rewriting,
		fn func(event func(*persister.Rewritten) error) (persister.RunTexts, error)) error
}

// Letters keeps dead letters. Both database stores are one.
type Letters interface {
	FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error)
	RewriteDeadLetter(ctx context.Context, l *deadletter.Stored) error
}

// History is rows and objects as one.
type History interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
}

// Objects writes objects of runs. blob.Reviser is one.
type Objects interface {
	Write(ctx context.Context, key schema.RunKey, place persister.Place, last schema.Seq,
		packs iter.Seq2[schema.Pack, error]) (uri string, size int64, err error)
	DropOthers(ctx context.Context, key schema.RunKey, place persister.Place) (int, error)
	Large(ctx context.Context, key schema.RunKey, day string) iter.Seq2[schema.Blob, iter.Seq2[[]byte, error]]
	DropLarge(ctx context.Context, key schema.RunKey, day, ref string) error
}

// MessageLog has the messages of runs.
type MessageLog interface {
	Newest(ctx context.Context, key schema.RunKey) (stream string, position uint64, err error)
	Messages(ctx context.Context, key schema.RunKey, through uint64) iter.Seq2[persister.Logged, error]
	Cut(ctx context.Context, key schema.RunKey, through uint64) (int, error)
}

// LogBlobs has the blobs of runs in the log.
type LogBlobs interface {
	ListBlobs(ctx context.Context, key schema.RunKey) ([]schema.Blob, error)
	Blob(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error)
	EraseBlob(ctx context.Context, key schema.RunKey, ref string) error
}

// Config configures a Scrubber. Rules, Store, Letters and History must be set.
type Config struct {
	Rules   func(tenant string) *redact.Rules // nil: nothing is to be hidden
	Store   RunStore
	Letters Letters
	History History
	Objects Objects    // nil: there are none
	Log     MessageLog // nil: it is not looked at
	Blobs   LogBlobs   // nil: they are not looked at
	// Offsets returns how far each stream of the log is stored; set where Log is.
	Offsets func(ctx context.Context) ([]persister.StoredOffset, error)
	// Changed is called with each run that holds something that was hidden, after it has changed everywhere. It may be nil.
	Changed func(ctx context.Context, key schema.RunKey) error

	DryRun  bool          // nothing is changed
	HeldToo bool          // also runs under a legal hold
	Wait    time.Duration // how long what is in the log may take to be stored; default 30 s
	Logger  *slog.Logger  // nil discards
}

// Errors of Run.
var (
	// ErrNotStored reports that what the log has of a run is not stored.
	ErrNotStored = errors.New("the log has what is not stored")
	// ErrNoObjects reports that events of a run are in an object, and no store of objects is configured.
	ErrNoObjects = errors.New("events are in an object, and no store of objects is configured")
)

// Done is what was found, and what was done, in one run or in all of them.
type Done struct {
	Events   int // that were read
	Changed  int // events that are others now
	Objects  int // that were written
	Messages int // of the log, removed
	Blobs    int // removed
	Letters  int // dead letters, changed
	Sealed   Sealed
	Hits     []redact.Hit
}

// Sealed is what could not be looked into because it is encrypted. It stays as it is.
type Sealed struct {
	Events  int `json:"events"`
	Blobs   int `json:"blobs"`
	Letters int `json:"dead_letters"`
}

// Add adds to the counts.
func (s *Sealed) Add(more Sealed) {
	s.Events, s.Blobs, s.Letters = s.Events+more.Events, s.Blobs+more.Blobs, s.Letters+more.Letters
}

// Any reports whether anything was found.
func (d *Done) Any() bool { return d.Changed+d.Objects+d.Messages+d.Blobs+d.Letters > 0 }

// Scrubber hides texts in stored runs. Create it with New.
type Scrubber struct{ cfg Config }

// New returns a Scrubber.
func New(cfg Config) (*Scrubber, error) {
	if cfg.Rules == nil || cfg.Store == nil || cfg.Letters == nil || cfg.History == nil || cfg.Log != nil && cfg.Offsets == nil {
		return nil, errors.New("scrub: config needs rules and a store")
	}
	cfg.Wait = cmp.Or(cfg.Wait, 30*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scrubber{cfg}, nil
}
