package deadletter

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"agentstream/persister"
)

// Redriver is what Redrive needs of a store.
type Redriver interface {
	// Append is a Store's Transfer of chunks alone, except that conflicts are reported and not kept.
	Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error)
	// PutDeadLetters stores dead letters. One that is stored already is skipped.
	PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error
	// DropDeadLetters removes dead letters by name and returns the number of those that existed.
	DropDeadLetters(ctx context.Context, names []string) (int, error)
	// NoteTries counts failed tries. Dead letters that do not exist are skipped.
	NoteTries(ctx context.Context, failed []FailedTry) error
}

// Outcome is the result of another try of a dead letter.
type Outcome struct {
	Name   string
	Rows   int                    // that could be read; a whole message has several
	Became []persister.DeadLetter // lines of it that are dead letters of their own now, or the dead letter itself with another reason
	Error  string                 // why it stays; "" when it has left
}

var errLeft = errors.New("the run is archived, expired or to be forgotten: rows of this place are not written any more")

// redriveRows bounds the rows of one transaction, except for a message that has more.
const redriveRows = 1000

// Redrive decodes dead letters again and stores their rows. A dead letter whose rows are stored, now or before with
// the same content, is removed. One that fails stays, with the new error and one more try. Stored rows are never
// overwritten: a conflict stays a conflict. A dead letter that fails for another reason than before is replaced by one
// with that reason. A message of which only some lines cannot be stored is replaced by dead letters of these lines.
//
// Rows are committed first, then new dead letters, and only then is the old one removed: after a crash at any point the
// same call does the rest. An error is the store's; what was done until then stays done. The outcomes are in the order
// of the dead letters. After an error they are those of the first ones.
func Redrive(ctx context.Context, store Redriver, deadLetters ...Stored) ([]Outcome, error) {
	outcomes := make([]Outcome, 0, len(deadLetters))
	tries := make([]*try, 0, len(deadLetters))
	for i := range deadLetters {
		tries = append(tries, newTry(&deadLetters[i]))
	}
	for len(tries) > 0 {
		n, rows := 0, 0
		for n < len(tries) && (n == 0 || rows+len(tries[n].chunk.Rows)+len(tries[n].bad) <= redriveRows) {
			rows += len(tries[n].chunk.Rows) + len(tries[n].bad)
			n++
		}
		if err := redrive(ctx, store, tries[:n]); err != nil {
			return outcomes, err
		}
		for _, t := range tries[:n] {
			outcomes = append(outcomes, t.outcome)
		}
		tries = tries[n:]
	}
	return outcomes, nil
}

// Reread returns what Redrive would read of a dead letter, without a store: its rows and what is still wrong.
func Reread(l *Stored) (rows []persister.Row, bad []persister.DeadLetter) {
	t := newTry(l)
	return t.chunk.Rows, t.bad
}

// try is one dead letter during Redrive.
type try struct {
	stored  *Stored
	chunk   persister.Chunk
	bad     []persister.DeadLetter
	dropped bool // the store has dropped rows of it
	outcome Outcome
}

func newTry(l *Stored) *try {
	t := &try{stored: l}
	t.chunk, t.bad = l.Decode()
	t.outcome = Outcome{Name: l.Name, Rows: len(t.chunk.Rows)}
	return t
}

func redrive(ctx context.Context, store Redriver, tries []*try) error {
	parts := make([]tryPart, 0, len(tries))
	for _, t := range tries {
		if len(t.chunk.Rows) > 0 {
			parts = append(parts, tryPart{t, t.chunk})
		}
	}
	if err := storeParts(ctx, store, parts); err != nil {
		return fmt.Errorf("store rows of dead letters: %w", err)
	}
	var became []persister.DeadLetter
	var done []string
	var failed []FailedTry
	for _, t := range tries {
		if t.settle() {
			done = append(done, t.stored.Name)
		} else {
			failed = append(failed, FailedTry{t.stored.Name, t.outcome.Error})
		}
		became = append(became, t.outcome.Became...)
	}
	if len(became) > 0 {
		if err := store.PutDeadLetters(ctx, became); err != nil {
			return err
		}
	}
	if len(done) > 0 {
		if _, err := store.DropDeadLetters(ctx, done); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return store.NoteTries(ctx, failed)
	}
	return nil
}

// settle decides whether the dead letter leaves the store.
func (t *try) settle() (leaves bool) {
	own := t.stored.ID()
	if t.dropped {
		t.outcome.Error = errLeft.Error()
	}
	same := slices.IndexFunc(t.bad, func(l persister.DeadLetter) bool { return bytes.Equal(l.ID(), own) })
	if same >= 0 {
		t.outcome.Error = t.bad[same].Detail
	}
	// A dead letter whose name is not that of its content was edited: what is read from it must not replace it.
	if len(t.bad) > 0 && t.outcome.Error == "" && hex.EncodeToString(own) != t.stored.Name {
		t.outcome.Error = t.bad[0].Reason + ": " + t.bad[0].Detail
	}
	if t.outcome.Error == "" {
		t.outcome.Became = t.bad
	}
	return t.outcome.Error == ""
}

// tryPart is the part of a try that is in one append.
type tryPart struct {
	try   *try
	chunk persister.Chunk
}

// storeParts stores the rows. It divides them when the store refuses the data, or has dropped rows without
// reporting of which dead letter.
func storeParts(ctx context.Context, store Redriver, parts []tryPart) error {
	if len(parts) == 0 {
		return nil
	}
	chunks := make([]persister.Chunk, len(parts))
	for i := range parts {
		chunks[i] = parts[i].chunk
	}
	res, err := store.Append(ctx, chunks)
	switch {
	case err == nil && (res.Dropped == 0 || len(parts) == 1):
		for _, c := range res.Conflicts {
			parts[c.Chunk].try.bad = append(parts[c.Chunk].try.bad, chunks[c.Chunk].Conflict(c.Row))
		}
		parts[0].try.dropped = parts[0].try.dropped || res.Dropped > 0
		return nil
	case err != nil && !errors.Is(err, persister.ErrPoison):
		return err
	}
	var first, second []tryPart
	switch rows := chunks[0].Rows; {
	case len(parts) > 1:
		first, second = parts[:len(parts)/2], parts[len(parts)/2:]
	case len(rows) > 1:
		a, b := parts[0], parts[0]
		a.chunk.Rows, b.chunk.Rows = rows[:len(rows)/2], rows[len(rows)/2:]
		first, second = []tryPart{a}, []tryPart{b}
	default:
		parts[0].try.bad = append(parts[0].try.bad, chunks[0].Refusal(0, err))
		return nil
	}
	if err := storeParts(ctx, store, first); err != nil {
		return err
	}
	return storeParts(ctx, store, second)
}
