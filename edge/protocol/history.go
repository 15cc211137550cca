package protocol

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// MaxScan is how many records one request for a page looks at, shown or not.
const MaxScan = 20_000

// Bounds of one request for a page.
const (
	minScan      = 1024    // records downwards first, then twice as many, and so on
	maxPageBytes = 4 << 20 // of its objects; it ends with the one that crosses it
)

// Page is an answer under way: objects in the order in which they are found, at most Limit.
type Page struct {
	Limit int
	Items []Item
	bytes int
}

// Item is an object of a page.
type Item struct {
	ID   string
	Data []byte
}

// Add appends an object.
func (l *Page) Add(id string, data []byte) {
	l.Items = append(l.Items, Item{id, data})
	l.bytes += len(data)
}

// Full reports whether the page takes no more.
func (l *Page) Full() bool { return len(l.Items) >= l.Limit || l.bytes > maxPageBytes }

// Append appends the objects to dst, with commas between them.
func (l *Page) Append(dst []byte) []byte {
	dst = slices.Grow(dst, l.bytes+len(l.Items)+256)
	for i, it := range l.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, it.Data...)
	}
	return dst
}

// MarshalJSON encodes the objects as a list.
func (l *Page) MarshalJSON() ([]byte, error) { return append(l.Append([]byte("[")), ']'), nil }

// A token is base64url of a text, a dot and a check sum over the text and the list. Nobody is kept from making one: it
// says nothing that its reader may not ask for.

// PageToken returns a text as a token for a list.
func PageToken(list, text string) string {
	sum := sha256.Sum256([]byte("page\x00" + list + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString([]byte(text + "." + hex.EncodeToString(sum[:6])))
}

// maxToken is the longest token, in bytes.
const maxToken = 512

// ReadPageToken returns the text of a token that PageToken made for a list.
func ReadPageToken(list, token string) (text string, ok bool) {
	if len(token) > maxToken {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	i := bytes.LastIndexByte(raw, '.')
	if err != nil || i < 0 {
		return "", false
	}
	text = string(raw[:i])
	return text, PageToken(list, text) == token // also the decoder passes over line breaks
}

// Offset is a position between the frames of a history: before frame N of a record, counted from 0 among all
// that the record has in this history, whatever a filter hides.
type Offset struct {
	Seq schema.Seq
	N   int
}

func (s Offset) String() string { return s.Seq.String() + "." + strconv.Itoa(s.N) }

// ParseOffset reads what String wrote. The error wraps schema.ErrBadCursor.
func ParseOffset(text string) (s Offset, err error) {
	seq, n, _ := strings.Cut(text, ".")
	if s.Seq, err = schema.ParseCursor(seq); err != nil {
		return s, err
	}
	if s.N, err = strconv.Atoi(n); err != nil || s.N < 0 || s.String() != text {
		return s, dialect.Refuse(schema.ErrBadCursor, "page is not from this list")
	}
	return s, nil
}

// History reads the frames of a run, as a request shows them, into one page. One request looks at 20,000 records at
// most, so a page may be short, or empty, with more to come.
type History struct {
	Page
	Call    *Call
	Request dialect.Request                         // names the run
	Wants   func(dialect.Frame, schema.Record) bool // nil: all
	Newest  schema.Seq                              // record, up to which it reads

	Next Offset // where the next page goes on
	More bool   // there is one

	frames dialect.Frames
}

// isWanted reports whether a frame is asked for.
func (p *History) isWanted(f dialect.Frame, r schema.Record) bool {
	if s := p.Request.Select; s != nil && !s.Match(&f) {
		return false
	}
	return p.Wants == nil || p.Wants(f, r)
}

// Read reads the page that a token names; "" is the first one. It goes up from the first record of the run, or of the
// child whose id Request.Run is, or down from the newest one. next is the token of the page behind it, "" when there is
// none. The error wraps schema.ErrBadCursor for what is no token of this run, and fanout.ErrNotFound for a run that is
// not there.
func (p *History) Read(ctx context.Context, token string, down bool) (next string, err error) {
	if p.Request.Run, p.Request.Child, _, err = p.Call.Locate(ctx, p.Request.Run); err != nil {
		return "", err
	}
	head, _, err := Newest[dialect.Stateful](ctx, p.Call, p.Request)
	if err != nil {
		return "", err
	}
	p.Newest = head.Last
	from, look := Offset{Seq: 1}, p.Up
	if down {
		from.Seq, look = p.Newest+1, p.Down
	}
	list := p.Request.Run
	if text, ok := ReadPageToken(list, token); ok {
		from, err = ParseOffset(text)
	} else if token != "" {
		err = dialect.Refuse(schema.ErrBadCursor, "page is not from this list")
	}
	if err == nil {
		err = look(ctx, from)
	}
	if p.More {
		next = PageToken(list, p.Next.String())
	}
	return next, err
}

// Up goes from a place towards the newest record. One more event than the page takes is looked for, to know
// whether there is a next page.
func (p *History) Up(ctx context.Context, from Offset) error {
	p.Next = from
	looked := 0
	return p.walk(ctx, from.Seq-1, p.Newest, func(r schema.Record) (bool, error) {
		for i, f := range p.frames.List {
			at := Offset{r.Seq, i}
			if r.Seq == from.Seq && i < from.N || !p.isWanted(f, r) {
				continue
			}
			if p.Full() {
				p.Next, p.More = at, true
				return false, nil
			}
			p.Add(string(f.Token), bytes.Clone(f.Data))
		}
		p.Next = Offset{Seq: r.Seq + 1}
		looked++
		p.More = looked == MaxScan && r.Seq < p.Newest
		return !p.More, nil
	})
}

// Down goes from a place towards the first record. A history is projected upwards alone, so it takes stretches, each
// in front of the one before it.
func (p *History) Down(ctx context.Context, from Offset) error {
	p.Next = from
	look := max(minScan, 2*p.Limit)
	for left := MaxScan; p.Next.Seq > 1 || p.Next.N > 0; look *= 2 {
		if p.bytes > maxPageBytes || left == 0 {
			p.More = true
			return nil
		}
		hi := p.Next.Seq
		if p.Next.N == 0 {
			hi--
		}
		lo := max(hi-schema.Seq(min(look, left)), 0)
		cut, err := p.readRange(ctx, lo, hi)
		if gone := new(fanout.ExpiredError); errors.As(err, &gone) {
			if gone.First < 1 || gone.First > hi {
				return p.shorten(err)
			}
			lo = gone.First - 1 // its upper part is still kept
			if cut, err = p.readRange(ctx, lo, hi); err == nil && !cut {
				p.More = true // what is missing is for the next request to hear
				cut = true
			}
		}
		if err != nil || cut {
			return err
		}
		left -= int(hi - lo)
	}
	return nil
}

// shorten ends a page in front of what is no longer kept; the next one returns it.
func (p *History) shorten(err error) error {
	if len(p.Items) == 0 {
		return err
	}
	p.More = true
	return nil
}

// readRange adds the events of the records after lo and up to hi that are before p.Next, the newest first. cut:
// the page was full before it had them all, so that there is a next one.
func (p *History) readRange(ctx context.Context, lo, hi schema.Seq) (cut bool, err error) {
	kept := Tail[Offset]{Most: p.Limit - len(p.Items), Room: maxPageBytes - p.bytes}
	err = p.walk(ctx, lo, hi, func(r schema.Record) (bool, error) {
		for i, f := range p.frames.List {
			if r.Seq == p.Next.Seq && i >= p.Next.N {
				break
			}
			if p.isWanted(f, r) {
				kept.Push(Offset{r.Seq, i}, string(f.Token), f.Data)
			}
		}
		return true, nil
	})
	if err != nil {
		return false, err
	}
	for _, f := range slices.Backward(kept.List) {
		p.Add(f.ID, f.Data)
		p.Next = f.At
	}
	if kept.Cut {
		p.More = true
		return true, nil
	}
	p.Next = Offset{Seq: lo + 1}
	return false, nil
}

// walk calls fn with each record behind lo up to hi, its frames in p.frames, until fn returns false.
func (p *History) walk(ctx context.Context, lo, hi schema.Seq, fn func(schema.Record) (bool, error)) error {
	if lo >= hi {
		return nil
	}
	projector, err := p.Call.At(ctx, p.Request.Run, lo, p.Request)
	if err != nil {
		return err
	}
	at := lo
	for r, err := range p.Call.Records(ctx, p.Request.Run, lo, hi) {
		if err != nil {
			return err
		}
		p.frames.Reset()
		if err := projector.Project(&p.frames, r); err != nil {
			return err
		}
		more, err := fn(r)
		if err != nil || !more {
			return err
		}
		at = r.Seq
	}
	if at < hi {
		return fmt.Errorf("records of %s end at %d, %d exists: %w", p.Request.Run, at, hi, fanout.ErrUnavailable)
	}
	return nil
}

// Tail holds the newest of what passes, in its order: at most so many, and about so many bytes. P is a place.
type Tail[P any] struct {
	Most, Room int
	List       []Passed[P]
	Cut        bool // older ones were let go
	bytes      int
}

// Passed is one of a Tail.
type Passed[P any] struct {
	At   P
	ID   string
	Data []byte
}

// Push adds a copy of data: a part would keep its whole pack.
func (t *Tail[P]) Push(at P, id string, data []byte) {
	t.List = append(t.List, Passed[P]{at, id, bytes.Clone(data)})
	t.bytes += len(data)
	for len(t.List) > t.Most || len(t.List) > 1 && t.bytes-len(t.List[0].Data) > t.Room {
		t.bytes -= len(t.List[0].Data)
		t.List[0].Data = nil
		t.List, t.Cut = t.List[1:], true
	}
}
