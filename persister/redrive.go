package persister

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"agentstream/schema"
)

// Redriver is what Redrive needs of a store.
type Redriver interface {
	// Append is a Store's Transfer of chunks alone, except that conflicts are reported and not kept.
	Append(ctx context.Context, chunks []Chunk) (Result, error)
	// PutDeadLetters keeps dead letters, each once however often it comes.
	PutDeadLetters(ctx context.Context, letters []DeadLetter) error
	// DropDeadLetters removes dead letters by name and gives the number of those that were there.
	DropDeadLetters(ctx context.Context, names []string) (int, error)
	// NoteTries counts tries that failed. Letters that are not there are passed over.
	NoteTries(ctx context.Context, failed []FailedTry) error
}

// Outcome is what a new try of a letter came to.
type Outcome struct {
	Name   string
	Rows   int          // that could be read; of a whole message there are several
	Became []DeadLetter // lines of it that are letters of their own now, or the letter itself with another reason
	Error  string       // why it stays; "" when it has left
}

var (
	errLeft = errors.New("the run is archived, expired or to be forgotten: rows of this place are not written any more")
	errLine = errors.New("the line's place is not in its pack")
)

// redriveRows bounds the rows of one transaction, except for a message that has more.
const redriveRows = 1000

// Redrive takes letters the way of messages from the log once more. A letter whose rows are stored, now
// or before with the same content, is removed; one that fails stays, with the new error and one try more.
// What is stored is never written over: a conflict stays a conflict. A letter that is read now but kept
// out for another reason becomes a letter of that reason, and a message of which only some lines cannot be
// stored becomes letters of these.
//
// Rows are committed first, then new letters, and only then is the letter removed: after a crash at any
// point the same call does the rest. An error is the store's; what was done until then stays done. The
// outcomes are those of the letters in their order, as far as it came.
func Redrive(ctx context.Context, store Redriver, letters ...StoredDeadLetter) ([]Outcome, error) {
	outcomes := make([]Outcome, 0, len(letters))
	tries := make([]*try, 0, len(letters))
	for i := range letters {
		tries = append(tries, newTry(&letters[i]))
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

// Reread says what Redrive would read of a letter, without a store: its rows and what is still wrong.
func Reread(l *StoredDeadLetter) (rows []Row, bad []DeadLetter) {
	t := newTry(l)
	return t.chunk.Rows, t.bad
}

// try is a letter on its way.
type try struct {
	letter  *StoredDeadLetter
	chunk   Chunk
	bad     []DeadLetter
	left    bool // rows were dropped
	outcome Outcome
}

func newTry(l *StoredDeadLetter) *try {
	t := &try{letter: l}
	m := &Message{Stream: l.Stream, Position: l.Position, Subject: l.Subject, Header: l.Header, Body: l.Body}
	if l.Seq == 0 {
		t.chunk, t.bad = decode(m)
	} else {
		t.chunk, t.bad = decodeLine(m, l)
	}
	t.outcome = Outcome{Name: l.Name, Rows: len(t.chunk.Rows)}
	return t
}

// decodeLine reads the one line of a pack that a letter holds. The head is that of the whole pack: where the
// other lines are is not known, and they have been stored or are letters as well.
func decodeLine(m *Message, l *StoredDeadLetter) (Chunk, []DeadLetter) {
	fail := func(err error) (Chunk, []DeadLetter) {
		return Chunk{from: m}, []DeadLetter{m.letter(l.Key, l.Seq, l.Body, l.Reason, err)}
	}
	p, err := packOf(m)
	if err != nil {
		return fail(err)
	}
	if l.Seq < p.First || l.Seq > p.Last() {
		return fail(fmt.Errorf("seq %d of %d to %d: %w", l.Seq, p.First, p.Last(), errLine))
	}
	row, err := readRow(&p, l.Seq, l.Body)
	if err != nil {
		return fail(err)
	}
	return Chunk{Key: p.Key, Child: p.Child, Head: p.Head, Rows: []Row{row}, from: m}, nil
}

// packOf reads the headers of a pack whose body is not there.
func packOf(m *Message) (schema.Pack, error) {
	lines := 0
	if v := m.Header[schema.HeaderCount]; len(v) > 0 {
		lines, _ = strconv.Atoi(v[0]) // ParsePack refuses what is no number
	}
	p, err := schema.ParsePack(m.Subject, m.Header, bytes.Repeat([]byte{'\n'}, min(max(lines, 0), schema.MaxPackEvents)), m.Position)
	if err == nil {
		err = checkDay(p.Head.Day)
	}
	return p, err
}

func redrive(ctx context.Context, store Redriver, tries []*try) error {
	parts := make([]portion, 0, len(tries))
	for _, t := range tries {
		if len(t.chunk.Rows) > 0 {
			parts = append(parts, portion{t, t.chunk})
		}
	}
	if err := place(ctx, store, parts); err != nil {
		return fmt.Errorf("store rows of dead letters: %w", err)
	}
	var became []DeadLetter
	var done []string
	var failed []FailedTry
	for _, t := range tries {
		if t.settle() {
			done = append(done, t.letter.Name)
		} else {
			failed = append(failed, FailedTry{t.letter.Name, t.outcome.Error})
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

// settle decides whether the letter leaves.
func (t *try) settle() (leaves bool) {
	own := t.letter.ID()
	if t.left {
		t.outcome.Error = errLeft.Error()
	}
	same := slices.IndexFunc(t.bad, func(l DeadLetter) bool { return bytes.Equal(l.ID(), own) })
	if same >= 0 {
		t.outcome.Error = t.bad[same].Detail
	}
	// What is not kept under its own name has been changed, and is no heir of what is.
	if len(t.bad) > 0 && t.outcome.Error == "" && hex.EncodeToString(own) != t.letter.Name {
		t.outcome.Error = t.bad[0].Reason + ": " + t.bad[0].Detail
	}
	if t.outcome.Error == "" {
		t.outcome.Became = t.bad
	}
	return t.outcome.Error == ""
}

// portion is what of a try is in one append.
type portion struct {
	try   *try
	chunk Chunk
}

// place stores the rows, and divides them where the store refuses the data or does not say which it has
// dropped.
func place(ctx context.Context, store Redriver, parts []portion) error {
	if len(parts) == 0 {
		return nil
	}
	chunks := make([]Chunk, len(parts))
	for i := range parts {
		chunks[i] = parts[i].chunk
	}
	res, err := store.Append(ctx, chunks)
	switch {
	case err == nil && (res.Dropped == 0 || len(parts) == 1):
		for _, c := range res.Conflicts {
			parts[c.Chunk].try.bad = append(parts[c.Chunk].try.bad, chunks[c.Chunk].letter(c.Row, ReasonConflict, errConflict))
		}
		parts[0].try.left = parts[0].try.left || res.Dropped > 0
		return nil
	case err != nil && !errors.Is(err, ErrPoison):
		return err
	}
	var first, second []portion
	switch rows := chunks[0].Rows; {
	case len(parts) > 1:
		first, second = parts[:len(parts)/2], parts[len(parts)/2:]
	case len(rows) > 1:
		a, b := parts[0], parts[0]
		a.chunk.Rows, b.chunk.Rows = rows[:len(rows)/2], rows[len(rows)/2:]
		first, second = []portion{a}, []portion{b}
	default:
		parts[0].try.bad = append(parts[0].try.bad, chunks[0].letter(0, ReasonRefused, err))
		return nil
	}
	if err := place(ctx, store, first); err != nil {
		return err
	}
	return place(ctx, store, second)
}
