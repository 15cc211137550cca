package fanout

import (
	"context"
	"errors"
	"iter"

	"agentstream/schema"
)

// History answers the question "what came after". The stream's window is one, the archive another;
// both satisfy it by shape. Implementations are safe for concurrent use.
type History interface {
	// Packs walks, in order, the run's packs that hold events with after < seq ≤ through. The first
	// pack may begin before after+1 (skip with Pack.Records) and, when the source no longer has the
	// beginning, after it. A walk that ends without an error is complete for this source.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	// Head returns the newest position that the source has; the zero Head when it has nothing of the run.
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
}

// Tail is the live side of the stream: copies of what has been stored, at most once each.
type Tail interface {
	// Watch calls fn for every copy of the run's packs from now on, from one goroutine at a time, and
	// returns when the interest is known to the server that we are connected to. fn must not block.
	// stop ends it. A pack without events, whose Head has a Root, says that the id is that of a child of it.
	Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (stop func(), err error)
	// Newest returns the newest seq of each run that the stream has. It may lag; it is for the audit.
	Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error)
	// Losses is signalled whenever copies may have been lost: a reconnect, an overflow.
	Losses() <-chan struct{}
}

// ChildError is ErrNotFound for an id that is that of a child of another run.
type ChildError struct {
	Root string // in whose log it writes
}

// Error names the run.
func (e *ChildError) Error() string { return "child of run " + e.Root + ", which is its log" }

// Unwrap returns ErrNotFound.
func (e *ChildError) Unwrap() error { return ErrNotFound }

// One sentinel for each decision of a caller.
var (
	// ErrNotFound reports that there is no such run in this tenant.
	ErrNotFound = errors.New("no such run")
	// ErrExpired reports that the events after the cursor are no longer kept
	// (KAI-STREAM-CONN-0002).
	ErrExpired = errors.New("events behind the cursor are no longer kept")
	// ErrFuture reports that the cursor is beyond the newest event.
	ErrFuture = errors.New("cursor is beyond the newest event")
	// ErrUnavailable reports that history cannot be read now; the caller may come back with the same
	// cursor.
	ErrUnavailable = errors.New("history is unavailable")
	// ErrClosed reports that the hub is shutting down.
	ErrClosed = errors.New("hub is closed")
)
