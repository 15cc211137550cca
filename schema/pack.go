package schema

import (
	"bytes"
	"fmt"
	"iter"
)

// Bounds of a pack, so that it fits the broker's largest message (1 MiB) with its headers. They are
// the bounds of what is stored atomically; publishers flush far smaller packs.
const (
	MaxPackEvents = 1024
	MaxPackBytes  = 768 << 10
)

// Pack is what one stored message holds: one to many consecutive events of one run and one lane,
// and the run's head after them. The store takes it whole or not at all.
type Pack struct {
	Key    RunKey
	Child  string // lane; "" is the root run itself
	First  Seq    // seq of the first line; the following lines count up by one
	Count  int    // number of lines
	Writer string // id of the writer, unique per process and opening; finds an unanswered publish again
	Batch  string // idempotency key of an append that brought one, hashed; "" otherwise
	Part   int    // position of this pack within such an append, from 0
	Head   Head   // the run after this pack; Head.Lane is this lane's, Head.Stored this pack's position
	Body   []byte // the lines, each ended by a line feed; must not be changed
}

// Last returns the seq of the last line.
func (p *Pack) Last() Seq { return p.First + Seq(p.Count) - 1 }

// Ended reports whether the run is over after this pack.
func (p *Pack) Ended() bool { return p.Head.State.Final() }

// At returns the pack as a reader gets it from position stored of the log: what is not stored in packs is left out of the head.
// The body is shared.
func (p Pack) At(stored uint64) Pack {
	h := p.Head
	p.Head = Head{Last: p.Last(), LastID: h.LastID, Day: h.Day, State: h.State, Stored: stored}
	if h.Lane.Owner != "" {
		p.Head.Lane = h.Lane
	}
	return p
}

// Records walks the lines with seq > after. A line that does not scan, or whose number is not the
// one its place gives it, yields an error that wraps ErrBadPack and ends the walk.
func (p *Pack) Records(after Seq) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		want := p.First
		for line := range Lines(p.Body) {
			if want > after {
				r, err := ScanLine(line)
				if err == nil && r.Seq != want {
					err = fmt.Errorf("line says seq %d: %w", r.Seq, ErrMalformed)
				}
				if err != nil {
					yield(Record{}, fmt.Errorf("run %s seq %d: %w: %w", p.Key, want, ErrBadPack, err))
					return
				}
				if !yield(r, nil) {
					return
				}
			}
			want++
		}
	}
}

// Trim returns the pack without the lines that have seq ≤ after. The body is shared.
func (p Pack) Trim(after Seq) Pack {
	for p.Count > 0 && p.First <= after {
		i := bytes.IndexByte(p.Body, '\n')
		p.Body = p.Body[i+1:]
		p.First++
		p.Count--
	}
	return p
}

// Check verifies a pack that came from outside: every line scans, is of this run and lane, and has
// the number its place gives it. The error wraps ErrBadPack.
func (p *Pack) Check() error {
	n := 0
	for r, err := range p.Records(0) {
		if err != nil {
			return err
		}
		if string(r.Child) != p.Child {
			return fmt.Errorf("run %s seq %d: child %s in lane %s: %w", p.Key, r.Seq, quote(string(r.Child)), quote(p.Child), ErrBadPack)
		}
		e, err := DecodeLine(r.Line)
		if err != nil {
			return fmt.Errorf("run %s seq %d: %w: %w", p.Key, r.Seq, ErrBadPack, err)
		}
		if e.Type != string(r.Type) || e.ChildID != p.Child || !bytes.Equal(e.Payload, r.Payload()) {
			return fmt.Errorf("run %s seq %d: line is not in the form of the log: %w", p.Key, r.Seq, ErrBadPack)
		}
		if e.RunID != p.Key.Run {
			return fmt.Errorf("run %s seq %d: run_id %s: %w", p.Key, r.Seq, quote(e.RunID), ErrBadPack)
		}
		n++
	}
	if n != p.Count || n == 0 {
		return fmt.Errorf("run %s: %d lines where %d were said: %w", p.Key, n, p.Count, ErrBadPack)
	}
	return nil
}

func validDay(s string) bool {
	if len(s) != 8 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
