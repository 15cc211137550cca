package dialect

import (
	"slices"
	"strings"

	"agentstream/schema"
)

// SpanNewest is a Request.Span: the newest span that the run has when the stream is opened. Projectors are asked for it
// by Span alone, and see the id of what they found after that. A run that has no span yet is complete (ErrComplete). No
// id is equal to it, for ids are UTF-8.
const SpanNewest = "\xff"

// Span is a part of a run that is a protocol's unit: a turn, a response.
type Span struct {
	// as Request.Span names it; set for SpanNewest, and where a request is about another span than it names
	ID     string
	Number int        // among the run's, from 1: the same on every node
	First  schema.Seq // its first record; 0: there is no such span
	Last   schema.Seq // its last record; 0: it goes on
}

// Spans are what a Stateful projector keeps to be a Spanner: the spans of a run by their ids. An id names the newest
// span that has it. The zero value is ready. A copy is made by Clone.
type Spans struct {
	open, ended []Span // ended is only appended to: copies share it
	size        int
}

// spanSize is what one takes besides its id, in bytes.
const spanSize = 64

// Begin adds a span that begins with a record, and returns its number.
func (s *Spans) Begin(id string, first schema.Seq) int {
	n := len(s.open) + len(s.ended) + 1
	s.open = append(s.open, Span{ID: strings.Clone(id), Number: n, First: first})
	s.size += len(id) + spanSize
	return n
}

// End ends a span with a record. One that is not there, or has ended, is passed over.
func (s *Spans) End(id string, last schema.Seq) {
	i := find(s.open, id)
	if i < 0 {
		return
	}
	span := s.open[i]
	span.Last = last
	s.open, s.ended = slices.Delete(s.open, i, i+1), append(s.ended, span)
}

// Find returns a span, or the newest one for SpanNewest; the zero Span when there is none.
func (s *Spans) Find(id string) (found Span) {
	for _, list := range [][]Span{s.open, s.ended} {
		i := find(list, id)
		if i >= 0 && list[i].First > found.First {
			found = list[i]
		}
	}
	return found
}

// find returns the index of the span with an id that began last, -1 when there is none.
func find(list []Span, id string) int {
	found := -1
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].ID == id { // of several with one id, the last began last: they do not overlap
			return i
		}
		if id == SpanNewest && (found < 0 || list[i].First > list[found].First) {
			found = i
		}
	}
	return found
}

// Clone returns a copy that goes on by itself.
func (s *Spans) Clone() Spans { return Spans{slices.Clone(s.open), slices.Clip(s.ended), s.size} }

// Size is about what they hold, in bytes.
func (s *Spans) Size() int { return s.size }
