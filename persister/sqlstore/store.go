package sqlstore

import (
	"context"
	"fmt"
	"time"

	"agentstream/internal/fair"
	"agentstream/persister"
	"agentstream/schema"
)

// EveryTenant is the tenant of work for all tenants at once. No tenant can have this name.
const EveryTenant = "*"

// Connections are the slots of those that read for one tenant: one connection of all is left to the work for all
// tenants.
func Connections(total int) *fair.Slots { return fair.New(fair.Of(total - 1)) }

// Connection waits until a tenant may use one more connection of slots; the caller releases it. EveryTenant need not
// wait. The error is the cause of ctx.
func Connection(ctx context.Context, slots *fair.Slots, tenant string) (*fair.Slot, error) {
	if tenant == EveryTenant {
		return nil, nil
	}
	return slots.Acquire(ctx, tenant)
}

// DB runs statements. Each is for the rows of one tenant, or of EveryTenant, where the database limits what it shows.
type DB interface {
	// Read runs one statement and calls row for each row of its result. It ends with the first error of row.
	Read(ctx context.Context, tenant string, row func(Scan) error, text string, args ...any) error
	// Within runs fn in a transaction, and commits it when fn returns nil.
	Within(ctx context.Context, tenant string, fn func(Tx) error) error
	// Write stores the work in one transaction, for all tenants. It fails with ErrOtherDay after it has set Work.Days.
	Write(ctx context.Context, w *Work) (persister.Result, error)
	// Rewriter returns what replaces rows of a run in a transaction. day is the run's.
	Rewriter(ctx context.Context, tx Tx, key schema.RunKey, day string) (RunRewriter, error)
}

// Scan reads the columns of a row, as sql.Rows.Scan does.
type Scan func(into ...any) error

// Tx is a transaction.
type Tx interface {
	// Exec runs a statement and returns the number of rows that it changed.
	Exec(ctx context.Context, text string, args ...any) (int, error)
	// Row reads the first row of the result. It returns false when there is none.
	Row(ctx context.Context, into []any, text string, args ...any) (bool, error)
}

// Dialect is what differs between the databases within a statement.
type Dialect struct {
	Name      string // begins errors
	Now       string // expression: the time for columns that the database sets
	ForUpdate string // end of a select that locks its rows; "" when transactions that write exclude each other
	// Statements that begin a transaction that marks runs as removed, and one that places a hold: either the hold is
	// there first and the run is not marked, or AddHold sees the mark. "" as above.
	Marks, Holds string

	Find string // function: the place of a text in another, 0 when it is not there
	// ByWords follows the table and makes a search read the index agent_runs_words, ByKey the table itself, in the
	// order of its keys; "" where the planner does by itself.
	ByWords, ByKey string
	// AtOnce ends a subquery whose rows are found before they are put in order. "": an index has them in order.
	AtOnce string
	Millis func(column string) string // expression: a time in ms, as a whole number

	Usage       string   // table with a row for each message.end: seq, child_id, model, tokens, cost
	Projections []string // tables with rows that are made of events

	Day      func(day string) (any, error)     // argument for a column of days; day is YYYYMMDD
	Date     func(day string) (any, error)     // argument for valid_from of a price; day is YYYY-MM-DD
	Time     func(time.Time) any               // argument for a time of an event, or of a mark
	Clock    func(time.Time) any               // argument for a time that the database has set
	Position func(uint64) any                  // argument for a position in a stream
	IDs      func(names []string) (any, error) // argument for AnyID, of names of dead letters
	Refused  func(error) bool                  // reports whether a statement failed because of its data
	AnyID    string                            // condition: id is one of those in ?
}

// Store is the part of a persister.Store that is the same in all SQL databases. Create it with New.
type Store struct {
	db   DB
	rows persister.Rows
	d    Dialect
}

// New returns a Store whose events are read from rows.
func New(db DB, rows persister.Rows, d Dialect) Store { return Store{db: db, rows: rows, d: d} }

// wrap wraps an error with what was being done.
func (s *Store) wrap(err error, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", s.d.Name, fmt.Sprintf(format, args...), err)
}

// list returns the rows of one statement.
func list[T any](ctx context.Context, s *Store, tenant string, scan func(Scan) (T, error), text string,
	args ...any) (all []T, err error) {
	err = s.db.Read(ctx, tenant, func(row Scan) error {
		one, err := scan(row)
		all = append(all, one)
		return err
	}, text, args...)
	return all, err
}

// row reads the one row of a statement, and leaves into as it is when there is none.
func (s *Store) row(ctx context.Context, tenant string, into []any, text string, args ...any) (found bool, err error) {
	err = s.db.Read(ctx, tenant, func(scan Scan) error {
		found = true
		return scan(into...)
	}, text, args...)
	return found, err
}

// exec runs one statement in a transaction for all tenants and returns the number of rows that it changed.
func (s *Store) exec(ctx context.Context, text string, args ...any) (n int, err error) {
	err = s.db.Within(ctx, EveryTenant, func(tx Tx) (err error) {
		n, err = tx.Exec(ctx, text, args...)
		return err
	})
	return n, err
}

// lock runs a statement of the dialect that takes a lock, if it has one.
func lock(ctx context.Context, tx Tx, text string) error {
	if text == "" {
		return nil
	}
	_, err := tx.Exec(ctx, text)
	return err
}

// timeIn scans a time into t: UTC, zero for null. A driver returns it as a time or as a text.
type timeIn struct{ t *time.Time }

// Scan implements sql.Scanner.
func (in timeIn) Scan(v any) (err error) {
	switch v := v.(type) {
	case nil:
		*in.t = time.Time{}
	case time.Time:
		*in.t = v.UTC()
	case string:
		*in.t, err = time.Parse(time.RFC3339Nano, v)
	default:
		err = fmt.Errorf("%T is no time", v)
	}
	return err
}

// dayLayout is schema.Head.Day.
const dayLayout = "20060102"

// dayIn scans a day as YYYYMMDD.
type dayIn struct{ day *string }

// Scan implements sql.Scanner.
func (in dayIn) Scan(v any) error {
	switch v := v.(type) {
	case time.Time:
		*in.day = v.Format(dayLayout)
	case string:
		*in.day = v
	default:
		return fmt.Errorf("%T is no day", v)
	}
	return nil
}
