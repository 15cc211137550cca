package schema

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
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
	Writer string // id of the writer, unique per process and opening; finds an unanswered publish again. See PoliteWriter
	Batch  string // idempotency key of an append that brought one, hashed; "" otherwise
	Part   int    // position of this pack within such an append, from 0
	Head   Head   // the run after this pack; Head.Lane is this lane's, Head.Stored this pack's position
	Body   []byte // the lines, each ended by a line feed; must not be changed

	Patient bool // not stored: the log may keep the pack for part of a millisecond, to send it together with others
}

// Last returns the seq of the last line.
func (p *Pack) Last() Seq { return p.First + Seq(p.Count) - 1 }

// IsFinal reports whether the run is over after this pack.
func (p *Pack) IsFinal() bool { return p.Head.State.Final() }

// At returns the pack as a reader gets it from position stored of the log: what is not stored in packs is left out of
// the head. The body is shared.
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
			return fmt.Errorf("run %s seq %d: child %s in lane %s: %w", p.Key, r.Seq, quote(string(r.Child)),
				quote(p.Child), ErrBadPack)
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

// Names of the headers that travel beside the lines. Taps may rely on them.
const (
	HeaderSeq    = "Agent-Seq"     // seq of the first line
	HeaderCount  = "Agent-Count"   // number of lines
	HeaderWriter = "Agent-Writer"  // id of the writer
	HeaderDay    = "Agent-Day"     // day on which the run's first pack was written, YYYYMMDD
	HeaderState  = "Agent-State"   // lifecycle state of the run after this pack
	HeaderLane   = "Agent-Lane"    // owner and epoch of the lane: <owner>/<epoch>
	HeaderLastID = "Agent-Last-Id" // id of the last line's event
	HeaderBatch  = "Agent-Batch"   // hashed idempotency key and part: <hash>/<part>
)

// HeaderHold is the header of the message under a HoldSubject: the position of a pack of the run that is before it, and
// the writer who asks, or nothing in the place of one that asks no more.
const HeaderHold = "Agent-Hold"

// PoliteWriter is how the id of a writer begins that waits for others who ask for it (HoldSubject). Those from before
// that did not know such messages.
const PoliteWriter = "p"

// Headers returns the pack's headers. Values hold nothing but printable ASCII.
func (p *Pack) Headers() map[string][]string {
	h := make(map[string][]string, 8)
	p.EachHeader(func(name, value string) { h[name] = []string{value} })
	return h
}

// HeaderPack holds all of these in one: a version, then their values in the order in which they stand above, with a
// space between them and "=" for what is left out. It is read as they are. It costs less to write, to keep and to read,
// and is for logs that no program but this one reads.
const HeaderPack = "Agent-Pack"

const (
	packVersion = "1"
	noValue     = "="
)

// AppendHeader appends the value of HeaderPack.
func (p *Pack) AppendHeader(b []byte) []byte {
	text := func(s string) {
		if b = append(b, ' '); s == "" {
			s = noValue
		}
		b = append(b, s...)
	}
	b = strconv.AppendInt(append(append(b, packVersion...), ' '), int64(p.First), 10)
	b = strconv.AppendInt(append(b, ' '), int64(p.Count), 10)
	text(p.Writer)
	text(p.Head.Day)
	text(string(p.Head.State))
	text(p.Head.Lane.Owner)
	if p.Head.Lane.Owner != "" {
		b = strconv.AppendUint(append(b, '/'), p.Head.Lane.Epoch, 10)
	}
	text(p.Head.LastID)
	text(p.Batch)
	if p.Batch != "" {
		b = strconv.AppendInt(append(b, '/'), int64(p.Part), 10)
	}
	return b
}

// packHeaders are the values of a pack's headers, in the order of their names above.
type packHeaders [8]string

var packNames = [...]string{HeaderSeq, HeaderCount, HeaderWriter, HeaderDay, HeaderState, HeaderLane, HeaderLastID,
	HeaderBatch}

// ParseCopy is ParsePack for a republished message whose headers are as the wire has them, from which it takes the
// position.
func ParseCopy(subject, header string, body []byte) (Pack, error) {
	key, lane, err := ParseSubject(subject)
	if err != nil {
		return Pack{}, err
	}
	var h packHeaders
	var stored uint64
	for header != "" {
		var text string
		text, header, _ = strings.Cut(header, "\r\n")
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch name {
		case HeaderPosition:
			stored, _ = strconv.ParseUint(value, 10, 64)
		case HeaderPack:
			if h, err = readShort(key, value); err != nil {
				return Pack{}, err
			}
		default:
			if i := slices.Index(packNames[:], name); i >= 0 {
				h[i] = value
			}
		}
	}
	return readPack(key, lane, h, body, stored)
}

// HeaderPosition is the header in which the log's server tells where the message of a copy is.
const HeaderPosition = "Nats-Sequence"

func readHeaders(key RunKey, header map[string][]string) (h packHeaders, err error) {
	if one := header[HeaderPack]; len(one) > 0 {
		return readShort(key, one[0])
	}
	for i, name := range packNames {
		if v := header[name]; len(v) > 0 {
			h[i] = v[0]
		}
	}
	return h, nil
}

// readShort reads the value of HeaderPack.
func readShort(key RunKey, value string) (h packHeaders, err error) {
	version, rest, _ := strings.Cut(value, " ")
	bad := version != packVersion
	for i := range h {
		var more bool
		if h[i], rest, more = strings.Cut(rest, " "); h[i] == "" || more != (i < len(h)-1) {
			bad = true
		} else if h[i] == noValue {
			h[i] = ""
		}
	}
	if bad {
		return h, fmt.Errorf("run %s: header %s is %s: %w", key, HeaderPack, quote(value), ErrBadPack)
	}
	return h, nil
}

// EachHeader calls set with each of Headers.
func (p *Pack) EachHeader(set func(name, value string)) {
	// What must be written is written once, and cut.
	b := strconv.AppendInt(make([]byte, 0, 128), int64(p.First), 10)
	first := len(b)
	b = strconv.AppendInt(b, int64(p.Count), 10)
	count := len(b)
	if p.Head.Lane.Owner != "" {
		b = strconv.AppendUint(append(append(b, p.Head.Lane.Owner...), '/'), p.Head.Lane.Epoch, 10)
	}
	lane := len(b)
	if p.Batch != "" {
		b = strconv.AppendInt(append(append(b, p.Batch...), '/'), int64(p.Part), 10)
	}
	s := string(b)
	set(HeaderSeq, s[:first])
	set(HeaderCount, s[first:count])
	set(HeaderWriter, p.Writer)
	set(HeaderDay, p.Head.Day)
	set(HeaderLastID, p.Head.LastID)
	if p.Head.State != "" {
		set(HeaderState, string(p.Head.State))
	}
	if lane > count {
		set(HeaderLane, s[count:lane])
	}
	if p.Batch != "" {
		set(HeaderBatch, s[lane:])
	}
}

// ParsePack reads a stored or republished message. body is kept, not copied. It checks the headers
// and that the body has as many lines as they say, but not the lines (Check does). The error wraps
// ErrBadPack.
func ParsePack(subject string, header map[string][]string, body []byte, stored uint64) (Pack, error) {
	key, lane, err := ParseSubject(subject)
	if err != nil {
		return Pack{}, err
	}
	h, err := readHeaders(key, header)
	if err != nil {
		return Pack{}, err
	}
	return readPack(key, lane, h, body, stored)
}

func readPack(key RunKey, lane string, h packHeaders, body []byte, stored uint64) (p Pack, err error) {
	seq, count, day, state, owner, lastID, batch := h[0], h[1], h[3], h[4], h[5], h[6], h[7]
	p = Pack{Key: key, Child: lane, Writer: h[2], Body: body}
	p.Head = Head{LastID: lastID, Day: day, State: RunState(state), Stored: stored}
	bad := func(name, value string) (Pack, error) {
		return Pack{}, fmt.Errorf("run %s: header %s is %s: %w", key, name, quote(value), ErrBadPack)
	}
	if p.First, err = ParseCursor(seq); err != nil || p.First == 0 {
		return bad(HeaderSeq, seq)
	}
	if p.Count, err = strconv.Atoi(count); err != nil || p.Count < 1 || p.Count > MaxPackEvents {
		return bad(HeaderCount, count)
	}
	if n := bytes.Count(body, []byte{'\n'}); n != p.Count || body[len(body)-1] != '\n' {
		return bad(HeaderCount, count)
	}
	if !validDay(day) {
		return bad(HeaderDay, day)
	}
	if lastID != "" && ValidEventID(lastID) != nil {
		return bad(HeaderLastID, lastID)
	}
	if state != "" && !p.Head.State.valid() {
		return bad(HeaderState, state)
	}
	if owner != "" {
		name, epoch, _ := strings.Cut(owner, "/")
		p.Head.Lane.Owner = name
		if p.Head.Lane.Epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil {
			return bad(HeaderLane, owner)
		}
	}
	if batch != "" {
		id, part, _ := strings.Cut(batch, "/")
		p.Batch = id
		if p.Part, err = strconv.Atoi(part); err != nil || p.Part < 0 {
			return bad(HeaderBatch, batch)
		}
	}
	p.Head.Last = p.Last()
	return p, nil
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
