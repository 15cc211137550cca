package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema"
)

// Span is a part of a run that is a protocol's unit: a turn, a response.
type Span struct {
	Number int        // among the run's, from 1: the same on every node
	First  schema.Seq // its first record; 0: there is no such span
	Last   schema.Seq // its last record; 0: it goes on
}

// Spans are what a Stateful projector keeps to be a Spanner: the spans of a run by their ids. An id names the newest span that
// has it. The zero value is ready. A copy is made by Clone.
type Spans struct {
	open, ended []namedSpan // ended is only appended to: copies share it
	size        int
}

type namedSpan struct {
	id string
	Span
}

// spanSize is what one takes besides its id, in bytes.
const spanSize = 48

// Begin adds a span that begins with a record, and returns its number.
func (s *Spans) Begin(id string, first schema.Seq) int {
	n := len(s.open) + len(s.ended) + 1
	s.open = append(s.open, namedSpan{strings.Clone(id), Span{Number: n, First: first}})
	s.size += len(id) + spanSize
	return n
}

// End ends a span with a record. One that is not there, or has ended, is passed over.
func (s *Spans) End(id string, last schema.Seq) {
	if i := find(s.open, id); i >= 0 {
		span := s.open[i]
		span.Last = last
		s.open, s.ended = slices.Delete(s.open, i, i+1), append(s.ended, span)
	}
}

// Find returns a span; the zero Span when there is none.
func (s *Spans) Find(id string) (found Span) {
	for _, list := range [][]namedSpan{s.open, s.ended} {
		if i := find(list, id); i >= 0 && list[i].First > found.First {
			found = list[i].Span
		}
	}
	return found
}

// find returns the index of the last one with an id, -1 when there is none.
func find(list []namedSpan, id string) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].id == id {
			return i
		}
	}
	return -1
}

// Clone returns a copy that goes on by itself.
func (s *Spans) Clone() Spans { return Spans{slices.Clone(s.open), slices.Clip(s.ended), s.size} }

// Size is about what they hold, in bytes.
func (s *Spans) Size() int { return s.size }

// Turns are the spans of a run's turns, each from its turn.start to its turn.end. The zero value is ready.
type Turns struct {
	Spans
	Now string // the turn that goes on; "": none does
	Nth int    // place of the newest record among its turn's, from 1
}

// Add adds the run's next record, and returns the turn that it is of; "" is none.
func (t *Turns) Add(r schema.Record) (turn string) {
	if t.Now == "" && string(r.Type) == schema.TypeTurnStart {
		var of struct {
			ID string `json:"turn_id"`
		}
		if json.Unmarshal(r.Payload(), &of) == nil && of.ID != "" {
			t.Now, t.Nth = of.ID, 0
			t.Begin(t.Now, r.Seq)
		}
	}
	t.Nth++
	if turn = t.Now; turn != "" && string(r.Type) == schema.TypeTurnEnd {
		t.End(turn, r.Seq)
		t.Now = ""
	}
	return turn
}

// Clone returns a copy that goes on by itself.
func (t *Turns) Clone() Turns { return Turns{t.Spans.Clone(), t.Now, t.Nth} }
