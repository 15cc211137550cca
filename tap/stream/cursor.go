package stream

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// spot is how far a follower is in one partition.
type spot struct {
	position uint64    // of the newest message that is delivered whole
	stored   time.Time // when the log stored it; with position 0: events before are not asked for
	partial  uint64    // position of a message that is delivered in part; 0: there is none
	through  schema.Seq
	archive  *archived // what has left the log up to position is being read; nil: it is not
}

// archived is how far the reading of the archive is. Runs come in the order of their ids.
type archived struct {
	run   string // through which was read, up to seq
	seq   schema.Seq
	since time.Time // runs that have not changed since are left out; zero: none are
	cut   bool      // events before since are left out as well
}

// cursor is the place in every partition of one log.
type cursor struct {
	log    uint32 // of which log
	places []spot
}

// logID returns what tells one log from another.
func logID(ends []persister.Offset) uint32 {
	h := crc32.NewIEEE()
	for _, at := range ends {
		_, _ = h.Write([]byte(at.Identity + "\n")) // it never fails
	}
	return h.Sum32()
}

// Versions of the encoding, and what a place has beside its position.
const (
	version    = 1
	hasTime    = 1
	hasPartial = 2
	hasArchive = 4
	hasCut     = 8
)

// append appends the encoded cursor. Times are differences: those of the partitions are close.
func (c *cursor) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, version), c.log)
	b = binary.AppendUvarint(b, uint64(len(c.places)))
	last := int64(0)
	for i := range c.places {
		p := &c.places[i]
		b = append(b, p.flags())
		b = binary.AppendUvarint(b, p.position)
		if !p.stored.IsZero() {
			now := p.stored.UnixNano()
			b = binary.AppendVarint(b, now-last)
			last = now
		}
		if p.partial > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, p.partial-p.position), uint64(p.through))
		}
		if a := p.archive; a != nil {
			b = append(binary.AppendUvarint(b, uint64(len(a.run))), a.run...)
			b = binary.AppendUvarint(b, uint64(a.seq))
			b = binary.AppendVarint(b, nanos(a.since))
		}
	}
	return b
}

func (p *spot) flags() (f byte) {
	if !p.stored.IsZero() {
		f |= hasTime
	}
	if p.partial > 0 {
		f |= hasPartial
	}
	if p.archive != nil {
		f |= hasArchive
		if p.archive.cut {
			f |= hasCut
		}
	}
	return f
}

// nanos returns a time as a number; 0 is the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// String returns the cursor as clients hold it.
func (c *cursor) String() string { return base64.RawURLEncoding.EncodeToString(c.append(nil)) }

// errCursor reports a text that is no cursor of a tap.
var errCursor = fmt.Errorf("not a cursor of a tap: %w", schema.ErrBadCursor)

// maxCursor bounds a cursor's text: 64 partitions with what a place has at most.
const maxCursor = 16 << 10

// parse reads what String returns.
func parse(text string) (*cursor, error) {
	if len(text) > maxCursor {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 6 || b[0] != version {
		return nil, errCursor
	}
	d := decoder{rest: b[5:]}
	c := &cursor{log: binary.BigEndian.Uint32(b[1:])}
	n := d.uint()
	if n > uint64(len(d.rest)) {
		return nil, errCursor
	}
	last := int64(0)
	for range n {
		c.places = append(c.places, d.place(&last))
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errCursor
	}
	return c, nil
}

// decoder reads a cursor's bytes.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	return v * d.step(n)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.rest)
	return v * int64(d.step(n))
}

// step goes on by n bytes, and returns 0 where there are none.
func (d *decoder) step(n int) uint64 {
	if n <= 0 || n > len(d.rest) {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return 1
}

func (d *decoder) place(last *int64) (p spot) {
	if len(d.rest) == 0 {
		d.bad = true
		return p
	}
	flags := d.rest[0]
	d.rest = d.rest[1:]
	p.position = d.uint()
	if flags&hasTime != 0 {
		*last += d.int()
		p.stored = time.Unix(0, *last).UTC()
	}
	if flags&hasPartial != 0 {
		p.partial, p.through = p.position+d.uint(), schema.Seq(d.uint())
		d.bad = d.bad || p.partial <= p.position || p.through < 0
	}
	if flags&hasArchive != 0 {
		n := d.uint()
		if n > uint64(len(d.rest)) {
			d.bad = true
			return p
		}
		p.archive = &archived{run: string(d.rest[:n]), cut: flags&hasCut != 0}
		d.rest = d.rest[n:]
		p.archive.seq, p.archive.since = schema.Seq(d.uint()), timeOf(d.int())
		d.bad = d.bad || p.archive.seq < 0
	}
	return p
}

// errOtherLog reports a cursor of a log that is not there any more.
var errOtherLog = fmt.Errorf("the cursor is of another log: begin with from=TIME: %w", schema.ErrBadCursor)

// Later returns the place that is further of two cursors, in each partition. An empty text is the beginning. The
// error wraps schema.ErrBadCursor for what is no cursor, and for those of two logs, of which the second counts.
func Later(a, b string) (string, error) {
	next, err := parse(b)
	if err != nil || a == "" {
		return b, err
	}
	have, err := parse(a)
	if err != nil || have.log != next.log || len(have.places) != len(next.places) {
		return b, nil // what was kept is of no use any more
	}
	for i := range next.places {
		if have.places[i].isAfter(&next.places[i]) {
			next.places[i] = have.places[i]
		}
	}
	return next.String(), nil
}

// isAfter reports whether p is further than q.
func (p *spot) isAfter(q *spot) bool {
	if p.position != q.position {
		return p.position > q.position
	}
	if (p.archive == nil) != (q.archive == nil) {
		return p.archive == nil
	}
	if p.archive != nil && (p.archive.run != q.archive.run || p.archive.seq != q.archive.seq) {
		return p.archive.run > q.archive.run || p.archive.run == q.archive.run && p.archive.seq > q.archive.seq
	}
	return p.partial > q.partial || p.partial == q.partial && p.through > q.through
}
