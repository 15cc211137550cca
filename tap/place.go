package tap

import (
	"context"
	"time"

	"agentstream/persister"
)

// Spec is what a tap is asked for. It is kept with its places: who starts a member later reads the same.
type Spec struct {
	Name   string    `json:"name"`             // [A-Za-z0-9_-]{1,64}
	Tenant string    `json:"tenant,omitempty"` // "": all
	Types  []string  `json:"types,omitempty"`  // as text.* or run.lifecycle; none: all
	From   time.Time `json:"from,omitzero"`    // events before it are not delivered; zero: all that is kept
	To     []string  `json:"to,omitempty"`     // the sinks, without credentials
	Made   time.Time `json:"made,omitzero"`
}

// Standing is how far a tap has come in one partition.
type Standing struct {
	Offset persister.Offset `json:"offset"`
	Owner  string           `json:"owner,omitempty"` // the member that moved it last; "": it has gone
	Beat   uint64           `json:"beat"`            // counts changes, so that no two values are the same

	Revision uint64 `json:"-"`
}

// Places keeps how far taps have come. It is safe for concurrent use.
type Places interface {
	// Places returns the places of a tap.
	Places(ctx context.Context, tap string) ([]Standing, error)
	// Move stores a place where its revision is still the one that it was read with, and returns the new revision.
	// Otherwise the error wraps persister.ErrOvertaken. Revision 0 is that of a place that does not exist.
	Move(ctx context.Context, tap string, p Standing) (revision uint64, err error)
	// Ledger returns what SaveLedger has stored for a partition's stream; nil for nothing.
	Ledger(ctx context.Context, tap, stream string) ([]byte, error)
	// SaveLedger stores where in each run a tap is.
	SaveLedger(ctx context.Context, tap, stream string, ledger []byte) error
}

// Letters keeps dead letters. It is safe for concurrent use.
type Letters interface {
	// Put stores a letter. One that is stored already is stored once.
	Put(ctx context.Context, tap string, l Letter) error
	// Room returns nil when there is room for one more letter; else the error wraps ErrLettersFull, as that of Put does.
	Room(ctx context.Context, tap string) error
}
