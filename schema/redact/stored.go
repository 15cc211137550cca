package redact

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/seal"
)

// Bounds of how much of a run that is stored is looked at as one, so that a secret is found that is divided over deltas.
const (
	storedBytes  = 256 << 10 // of lines, where no text is open after them
	storedMost   = 8 << 20   // of lines, in any case
	storedBlocks = 4096      // texts that are open at once
)

// LiteralName is the name of the rule of [Literal].
const LiteralName = "text"

// Bounds of the text of [Literal], in bytes.
const (
	MinLiteral = 4
	MaxLiteral = 64 << 10
)

// Literal returns rules that hide one text wherever it is. The error wraps ErrRules when the text is shorter than MinLiteral
// or longer than MaxLiteral.
func Literal(text string) (*Rules, error) {
	if len(text) < MinLiteral || len(text) > MaxLiteral {
		return nil, fmt.Errorf("a text of %d bytes, %d to %d are allowed: %w", len(text), MinLiteral, MaxLiteral, ErrRules)
	}
	r := &Rules{texts: true, hasLiterals: true}
	for i := range r.kinds {
		r.kinds[i] = -1
	}
	pattern, err := regexp.Compile(regexp.QuoteMeta(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	literal, _ := pattern.LiteralPrefix()
	r.list = []compiled{{name: LiteralName, mark: "[redacted:" + LiteralName + "]", pattern: pattern, literal: literal}}
	r.loose = len(literal) < minLiteral
	r.hasLiterals = !r.loose
	return r, r.CheckStored()
}

// ErrOwnMark reports that a rule finds something in a mark: each look at what is stored would change it again.
var ErrOwnMark = errors.New("a rule finds something in the marks")

// CheckStored returns an error that wraps ErrOwnMark unless the rules can be applied to what they have been applied to.
func (r *Rules) CheckStored() error {
	if r == nil {
		return nil
	}
	for i := range r.list {
		for j := range r.list {
			c := &r.list[j]
			if c.pattern != nil && c.pattern.MatchString(r.list[i].mark) {
				return fmt.Errorf("rule %s finds something in %s: %w", c.name, r.list[i].mark, ErrOwnMark)
			}
		}
	}
	return nil
}

// Text hides what the rules find in a text that belongs to no event. It returns the text itself where nothing was found.
func (r *Rules) Text(text string) (string, []Hit) {
	if r == nil {
		return text, nil
	}
	list := r.whole("", text)
	if len(list) == 0 {
		return text, nil
	}
	var t tally
	for _, p := range list {
		t.add(r, p.rule, 1)
	}
	return r.replace(text, list, false), t.hits(r)
}

// StoredLine is one line of a run, as it is to be.
type StoredLine struct {
	Seq     schema.Seq
	Line    []byte // without line feed; the one that was given where Changed is false
	Changed bool
	Marked  bool // something was hidden in it, now or before
}

// Stored applies rules to the lines of a run that is stored, from its first one on, and holds a part of them. Lines that are
// sealed stay as they are: what a rule finds in them is chance, and nobody could open them afterwards. It belongs to one
// goroutine.
type Stored struct {
	rules *Rules
	blobs map[string][]Hit
	trail Trail
	wait  int // bytes from which on the lines are looked at

	lines  [][]byte
	events []schema.Event
	size   int

	Hits    []Hit // of all lines so far that changed
	Changed int   // lines
	Sealed  int   // lines that were not looked into
}

// NewStored returns a Stored for one run. blobs has what was found in blobs that are to be removed: the events that refer to
// them are marked.
func NewStored(r *Rules, blobs map[string][]Hit) *Stored {
	return &Stored{rules: r, blobs: blobs, wait: storedBytes}
}

// Add takes the next line, which it keeps, and returns lines that are decided, in order. The error wraps schema.ErrMalformed.
func (s *Stored) Add(line []byte) ([]StoredLine, error) {
	e, err := schema.DecodeLine(line)
	if err != nil {
		return nil, err
	}
	if seal.IsSealed(line) {
		s.Sealed++
		e.Payload, e.Extra = []byte("{}"), nil // the event still ends the blocks that it ends
	}
	s.lines, s.events, s.size = append(s.lines, line), append(s.events, e), s.size+len(line)
	if s.size < s.wait {
		return nil, nil
	}
	done := s.look(len(s.events))
	if done.Trail.blocks == nil || len(done.Trail.blocks) == 0 {
		return s.take(len(s.events), done), nil
	}
	if s.size < storedMost {
		s.wait = min(2*s.wait, storedMost)
		return nil, nil
	}
	n := len(s.events)
	for back := 1; done.Open && back < n; back *= 2 { // what may begin with the last events is looked at with the next ones
		part := s.look(n - back)
		if !part.Open {
			return s.take(n-back, part), nil
		}
	}
	return s.take(n, done), nil
}

// Rest returns the lines that are left.
func (s *Stored) Rest() []StoredLine { return s.take(len(s.events), s.look(len(s.events))) }

func (s *Stored) look(n int) Result {
	return s.rules.batch(s.trail, s.events[:n], storedBlocks)
}

// take hands the first lines out.
func (s *Stored) take(n int, done Result) []StoredLine {
	out := make([]StoredLine, n)
	for i := range n {
		e := &done.Events[i]
		_, changed := done.changed[i]
		if hits := s.hitsOf(e); len(hits) > 0 {
			mark(e, hits)
			changed = true
			s.Hits = sumHits(s.Hits, hits)
		}
		out[i] = StoredLine{Seq: e.Seq, Line: s.lines[i], Changed: changed}
		if changed {
			s.Changed++
			out[i].Line = e.AppendLine(nil)
		}
		out[i].Marked = changed || ReadHits(out[i].Line) != nil
		s.size -= len(s.lines[i])
	}
	s.Hits = sumHits(s.Hits, done.Hits)
	s.trail, s.wait = done.Trail, storedBytes
	s.lines, s.events = slices.Clone(s.lines[n:]), slices.Clone(s.events[n:])
	return out
}

// hitsOf returns what is to be noted of blobs that an event refers to, without what it says already.
func (s *Stored) hitsOf(e *schema.Event) (list []Hit) {
	if len(s.blobs) == 0 || !bytes.Contains(e.Payload, []byte(schema.BlobPrefix)) {
		return nil
	}
	var before []Hit
	if v := schema.Field(e.ExtraObject(), Field); v != nil {
		before = addHits(v, nil)
	}
	for ref, hits := range s.blobs {
		if !bytes.Contains(e.Payload, jsonscan.AppendString(nil, ref)) {
			continue
		}
		for _, h := range hits {
			if !slices.ContainsFunc(before, func(b Hit) bool { return b.Rule == h.Rule }) {
				list = sumHits(list, []Hit{h})
			}
		}
	}
	slices.SortFunc(list, func(a, b Hit) int { return bytes.Compare([]byte(a.Rule), []byte(b.Rule)) })
	return list
}

// sumHits adds counts by rule.
func sumHits(sum, more []Hit) []Hit {
	for _, h := range more {
		i := slices.IndexFunc(sum, func(o Hit) bool { return o.Rule == h.Rule })
		if i < 0 {
			sum = append(sum, h)
		} else {
			sum[i].Count += h.Count
		}
	}
	return sum
}

// blobTail is how much of a piece is looked at again with the next one, in bytes.
const blobTail = 16 << 10

// Content looks for what the rules find in content that comes in pieces and belongs to no event, as a blob does. It belongs
// to one goroutine.
type Content struct {
	rules *Rules
	tail  []byte
	Hits  []Hit // of each rule one, however often it has found something
}

// NewContent returns a Content.
func NewContent(r *Rules) *Content { return &Content{rules: r} }

// Add takes the next piece, which it does not keep.
func (c *Content) Add(piece []byte) {
	text := append(c.tail, piece...)
	c.look(string(text))
	if bytes.IndexByte(text, '\\') >= 0 { // JSON of which the strings have escapes
		c.look(unescape(text))
	}
	c.tail = slices.Clone(text[max(0, len(text)-blobTail):])
}

func (c *Content) look(text string) {
	if c.rules == nil {
		return
	}
	for _, p := range c.rules.whole(schema.TypeToolEnd, text) {
		name := c.rules.list[p.rule].name
		if !slices.ContainsFunc(c.Hits, func(h Hit) bool { return h.Rule == name }) {
			c.Hits = append(c.Hits, Hit{name, 1})
		}
	}
}

// unescape returns a text in which the escapes of JSON are what they stand for.
func unescape(text []byte) string {
	quoted := make([]byte, 0, len(text)+2)
	quoted = append(quoted, '"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"': // the end of a string, or its beginning
			quoted = append(quoted, '\\', '"')
		case c == '\\' && i+1 < len(text):
			quoted = append(quoted, c, text[i+1])
			i++
		case c == '\\':
		case c < ' ':
			quoted = append(quoted, ' ')
		default:
			quoted = append(quoted, c)
		}
	}
	return jsonscan.DecodeString(append(quoted, '"'))
}
