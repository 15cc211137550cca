package producers

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"agentstream/schema"
)

// Log is where packs are stored: JetStream, or memory in tests. Implementations are safe for
// concurrent use.
type Log interface {
	// Head returns the head of a run by the log's leader, with the owner of lane. A run without events
	// is the zero Head and no error.
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	// Append stores the pack if the run's newest pack is the one at position after (0: the run has
	// none) and returns its position. ErrConflict: it is not, and nothing was stored. ErrUnanswered:
	// it is unknown; look with Since before trying again. ErrUnavailable, ErrFull: nothing was stored.
	Append(ctx context.Context, p *schema.Pack, after uint64) (stored uint64, err error)
	// Since walks the run's packs behind position after, read from the leader, in order.
	Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error]
	// Adopt makes Head report of the children's ids that their events belong into the log of root, unless an id is that
	// of a run which has packs; of several roots the last one counts. Once it has returned, an Append to such a run which
	// was based on an older Head is refused. After an error some of the children may be noted, and it may be repeated.
	Adopt(ctx context.Context, root schema.RunKey, children ...string) error
}

// LaneReader is a Log that reads the owners of many lanes at once: a run may have as many lanes as events, and a read
// for each would cost more than its packs.
type LaneReader interface {
	// Lanes returns the owners of lanes, in their order; the zero Lane where a lane has no pack. Each is as new as what
	// the log's leader has when it is called.
	Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error)
}

// Lanes asks log for the owners of lanes: at once where it is a [LaneReader], one by one otherwise. For wrappers of a
// Log.
func Lanes(ctx context.Context, log Log, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	if r, ok := log.(LaneReader); ok {
		return r.Lanes(ctx, key, lanes)
	}
	owners := make([]schema.Lane, len(lanes))
	for i, lane := range lanes {
		head, err := log.Head(ctx, key, lane)
		if err != nil {
			return nil, err
		}
		owners[i] = head.Lane
	}
	return owners, nil
}

// Holder is a Log that can have the writers of a run wait for one of them: a compare-and-set alone never lets one
// through whose rounds are longer than those of another that writes all the time.
type Holder interface {
	// Hold has the heads of the run say that the others wait for the writer by (schema.Head.Held), unless they wait for
	// another one. Once it has returned, an Append that was based on an older Head is refused.
	Hold(ctx context.Context, key schema.RunKey, by string) error
	// Release takes that back, unless something was stored after it.
	Release(ctx context.Context, key schema.RunKey, by string) error
}

// Hold asks log for [Holder.Hold], and does nothing where it is no Holder. For wrappers of a Log.
func Hold(ctx context.Context, log Log, key schema.RunKey, by string) error {
	if h, ok := log.(Holder); ok {
		return h.Hold(ctx, key, by)
	}
	return nil
}

// Release asks log for [Holder.Release], and does nothing where it is no Holder. For wrappers of a Log.
func Release(ctx context.Context, log Log, key schema.RunKey, by string) error {
	if h, ok := log.(Holder); ok {
		return h.Release(ctx, key, by)
	}
	return nil
}

// Sink takes the events of one run in order: a [Publisher], or whatever else brings them to a log.
// Implementations are safe for concurrent use.
type Sink interface {
	// Send accepts events; it may return before they are stored. An error means that none of them was
	// accepted. The slice and the bytes of Payload and Extra are the caller's again once it has returned:
	// who keeps them copies them.
	Send(ctx context.Context, events ...schema.Event) error
	// Flush returns when everything accepted before is stored, or returns what was not.
	Flush(ctx context.Context) error
}

// Archive holds runs that the log no longer holds. Optional.
type Archive interface {
	// Head returns the head of an archived run, the zero Head when there is none.
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
}

// Past reads events that have left the log's window: a persister's store.
type Past interface {
	// Packs walks the events with after < seq ≤ through that are kept, in order.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
}

// One sentinel for each decision of a caller.
var (
	// ErrConflict, ErrUnanswered, ErrUnavailable and ErrFull are what a Log answers; see schema.
	ErrConflict    = schema.ErrConflict
	ErrUnanswered  = schema.ErrUnanswered
	ErrUnavailable = schema.ErrUnavailable
	ErrFull        = schema.ErrFull
	// ErrSetup is an ErrUnavailable that waiting does not end; see schema.
	ErrSetup = schema.ErrSetup
	// ErrRenewed reports that the log is not the one any more whose head the pack was built on: it has come back
	// shorter, and what it lacked was written back. Nothing was stored, and positions read before mean nothing.
	ErrRenewed = fmt.Errorf("the log was renewed: %w", ErrConflict)
	// ErrFenced reports that another writer has taken the lane over. The writer must stop.
	ErrFenced = errors.New("another writer has taken over")
	// ErrBackpressure reports that the publisher's buffer is full and the caller chose not to wait.
	ErrBackpressure = errors.New("publisher's buffer is full")
	// ErrClosed reports that the publisher was closed.
	ErrClosed = errors.New("publisher is closed")
	// ErrExists reports that a run that had to be new has events already.
	ErrExists = errors.New("run exists already")
	// ErrKeyReused reports that an idempotency key came again with another content.
	ErrKeyReused = errors.New("idempotency key was used for another content")
	// ErrKeys reports that a tenant has as many idempotency keys as are remembered of it. Nothing was stored.
	ErrKeys = errors.New("more idempotency keys than this tenant may use in a day")
)
