package persister

import (
	"bytes"
	"fmt"
	"time"

	"agentstream/schema"
)

// Decode returns what a message has, as a Persister reads it: a chunk without rows for what is no pack.
func Decode(m *Message) (Chunk, []DeadLetter) { return decode(m) }

// decode returns the rows of a message, and dead letters for what cannot be stored. The rules are those of
// schema.ParsePack and Pack.Check, applied to each line alone, so that one bad line does not affect its neighbours. In
// addition the day must be in the calendar.
func decode(m *Message) (Chunk, []DeadLetter) {
	if _, _, ok := schema.ParseChildSubject(m.Subject); ok || m.IsMark() {
		return Chunk{from: m}, nil // records of children's ids are for writers
	}
	p, err := schema.ParsePack(m.Subject, m.Header, m.Body, m.Position)
	if err == nil {
		err = checkDay(p.Head.Day)
	}
	if err != nil {
		key, _, _ := schema.ParseSubject(m.Subject)
		return Chunk{from: m}, []DeadLetter{m.deadLetter(key, 0, m.Body, ReasonBadMessage, err)}
	}
	var plain plainLines
	plain.of(&p)
	c := Chunk{Key: p.Key, Child: p.Child, Head: p.Head, Rows: make([]Row, 0, p.Count), from: m}
	var bad []DeadLetter
	rest := p.Body
	for seq := p.First; len(rest) > 0; seq++ {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		rest = after
		row, ok := plain.read(seq, line)
		if !ok {
			if row, err = readRow(&p, seq, line); err != nil {
				bad = append(bad, m.deadLetter(p.Key, seq, line, ReasonBadEvent, err))
				continue
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return c, bad
}

func checkDay(day string) error {
	if t, err := time.Parse("20060102", day); err != nil || t.Year() < 1 {
		return fmt.Errorf("day %q is not in the calendar: %w", day, schema.ErrBadPack)
	}
	return nil
}

func readRow(p *schema.Pack, seq schema.Seq, line []byte) (Row, error) {
	r, err := schema.ScanLine(line)
	if err != nil {
		return Row{}, err
	}
	if r.Seq != seq {
		return Row{}, fmt.Errorf("line says seq %d: %w", r.Seq, schema.ErrBadPack)
	}
	if string(r.Child) != p.Child {
		return Row{}, fmt.Errorf("child %.40q in lane %q: %w", r.Child, p.Child, schema.ErrBadPack)
	}
	e, err := schema.DecodeLine(line)
	if err != nil {
		return Row{}, err
	}
	payload := r.Payload()
	if e.Type != string(r.Type) || e.ChildID != p.Child || !bytes.Equal(e.Payload, payload) {
		return Row{}, fmt.Errorf("line is not in the form of the log: %w", schema.ErrBadPack)
	}
	if e.RunID != p.Key.Run {
		return Row{}, fmt.Errorf("run_id %q: %w", e.RunID, schema.ErrForeignRun)
	}
	ts, err := time.Parse(time.RFC3339Nano, e.TS)
	if err != nil {
		return Row{}, fmt.Errorf("ts %.40q: %w", e.TS, schema.ErrMalformed)
	}
	return Row{Seq: seq, ID: e.ID, Type: e.Type, TS: ts, Line: line, Payload: payload}, nil
}

func (m *Message) deadLetter(key schema.RunKey, seq schema.Seq, body []byte, reason string, err error) DeadLetter {
	return DeadLetter{
		Stream: m.Stream, Position: m.Position, Seq: seq, Key: key, Subject: m.Subject,
		Header: m.Header, Body: body, Reason: reason, Detail: err.Error(),
	}
}

// Refusal returns the dead letter of a row that the store refuses with err.
func (c *Chunk) Refusal(row int, err error) DeadLetter { return c.deadLetter(row, ReasonRefused, err) }

// Conflict returns the dead letter of a row that conflicts with a stored one.
func (c *Chunk) Conflict(row int) DeadLetter { return c.deadLetter(row, ReasonConflict, errConflict) }

func (c *Chunk) deadLetter(row int, reason string, err error) DeadLetter {
	from := c.from
	if from == nil {
		from = &Message{}
	}
	return from.deadLetter(c.Key, c.Rows[row].Seq, c.Rows[row].Line, reason, err)
}

// Chunks decodes packs for a store, as a Persister does with what it fetches. When a pack is not valid it returns no
// chunks: the error wraps schema.ErrBadPack and names the first such pack.
func Chunks(packs ...schema.Pack) ([]Chunk, error) {
	out := make([]Chunk, 0, len(packs))
	for i := range packs {
		p := &packs[i]
		m := &Message{Subject: schema.Subject(p.Key, p.Child, 1), Header: p.Headers(), Body: p.Body, Position: p.Head.Stored}
		c, bad := decode(m)
		if len(bad) > 0 {
			return nil, fmt.Errorf("pack of run %s at seq %d: %s: %w", p.Key, p.First, bad[0].Detail, schema.ErrBadPack)
		}
		out = append(out, c)
	}
	return out, nil
}
