package persister_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// ledger is a store in memory that writes down what transactions did, and can fail at each of them. Like a
// database, it does what it was asked before it answers.
type ledger struct {
	*persistertest.Memory
	// fault is asked before each transaction, and with nil before the offsets are read. Its error is the answer.
	fault func(ctx context.Context, t *persister.Transfer) error
	// after is asked when a transaction has been done. Its error is the answer.
	after func(t *persister.Transfer) error
	// waited is Result.Waited of each transaction.
	waited time.Duration

	mu        sync.Mutex
	calls     int // of Transfer
	reads     int // of Offsets
	moves     []move
	sums      persister.Result // of all that was done
	overtaken int              // calls that were refused for that
}

// move is one transaction that moved an offset.
type move struct {
	from, to persister.Offset
	owner    string
	rows     int
	at       time.Time
}

func newLedger() *ledger { return &ledger{Memory: persistertest.NewMemory()} }

func (l *ledger) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	l.set(func() { l.calls++ })
	if l.fault != nil {
		if err := l.fault(ctx, t); err != nil {
			return persister.Result{}, err
		}
	}
	l.mu.Lock() // held over the call: moves are written down in their order
	res, err := l.Memory.Transfer(ctx, t)
	res.Waited = l.waited
	l.note(t, res, err)
	l.mu.Unlock()
	if err == nil && l.after != nil {
		if err := l.after(t); err != nil {
			return persister.Result{}, err
		}
	}
	return res, err
}

// note is called with mu.
func (l *ledger) note(t *persister.Transfer, res persister.Result, err error) {
	if err != nil {
		if t.ShouldMoveOffset() && errors.Is(err, persister.ErrOvertaken) {
			l.overtaken++
		}
		return
	}
	l.sums.Inserted += res.Inserted
	l.sums.Repeated += res.Repeated
	l.sums.Dropped += res.Dropped
	l.sums.Conflicts = append(l.sums.Conflicts, res.Conflicts...)
	if t.ShouldMoveOffset() {
		l.moves = append(l.moves, move{t.From, t.To, t.Owner, rowsOf(t.Chunks), time.Now()})
	}
}

func (l *ledger) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	l.set(func() { l.reads++ })
	if l.fault != nil {
		if err := l.fault(ctx, nil); err != nil {
			return nil, err
		}
	}
	return l.Memory.Offsets(ctx)
}

func (l *ledger) set(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// history returns a copy of what was written down.
func (l *ledger) history() (moves []move, sums persister.Result, calls, reads, overtaken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.moves), l.sums, l.calls, l.reads, l.overtaken
}

// offset returns the stored offset of a stream.
func (l *ledger) offset(t *testing.T, stream string) persister.StoredOffset {
	t.Helper()
	all, err := l.Memory.Offsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.Stream == stream {
			return o
		}
	}
	return persister.StoredOffset{}
}

// owners counts the streams of each persister that has moved one within idle.
func (l *ledger) owners(t *testing.T, idle time.Duration) map[string]int {
	t.Helper()
	all, err := l.Memory.Offsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, o := range all {
		if o.Idle < idle {
			n[o.Owner]++
		}
	}
	return n
}

// once checks what the offsets are there for: the runs' rows equal the log, each was written by one
// transaction, and each transaction begins where the one before it on the same stream has ended.
func (l *ledger) once(t *testing.T, runs ...[]schema.Pack) {
	t.Helper()
	rows := 0
	for _, packs := range runs {
		for i := range packs {
			rows += packs[i].Count
		}
		if got := body(t, l, packs[0].Key); !bytes.Equal(got, bodies(packs...)) {
			t.Errorf("run %s: %d bytes of rows differ from %d of the log", packs[0].Key, len(got), len(bodies(packs...)))
		}
	}
	moves, sums, _, _, _ := l.history()
	if sums.Inserted != rows || sums.Repeated != 0 || len(sums.Conflicts) != 0 || len(deadLetters(t, l)) != 0 {
		t.Errorf("%d rows inserted of %d, %d repeated, %d conflicts, %d dead letters",
			sums.Inserted, rows, sums.Repeated, len(sums.Conflicts), len(deadLetters(t, l)))
	}
	at := make(map[string]persister.Offset)
	for _, m := range moves {
		if have := at[m.to.Stream]; have.Stream != "" && !have.Same(m.from) {
			t.Errorf("an offset moved from %+v, it was %+v", m.from, have)
		}
		if m.to.Identity == m.from.Identity && m.to.Position <= m.from.Position && m.to.Generation == m.from.Generation {
			t.Errorf("an offset moved from %d to %d", m.from.Position, m.to.Position)
		}
		at[m.to.Stream] = m.to
	}
}

// process is the ledger as one process sees it. After its kill no call answers.
type process struct {
	*ledger
	mu   sync.Mutex
	dead bool
}

func (p *process) kill() { p.cut(true) }

// cut parts the process from the store, or joins them again.
func (p *process) cut(dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = dead
}

func (p *process) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return fmt.Errorf("killed: %w", errAway)
	}
	return nil
}

func (p *process) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	if err := p.gone(); err != nil {
		return persister.Result{}, err
	}
	res, err := p.ledger.Transfer(ctx, t)
	if gone := p.gone(); gone != nil {
		return persister.Result{}, gone
	}
	return res, err
}

func (p *process) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	if err := p.gone(); err != nil {
		return nil, err
	}
	return p.ledger.Offsets(ctx)
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
