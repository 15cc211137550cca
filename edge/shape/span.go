package shape

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"agentstream/schema"
)

// Types that exist in views alone: no producer may send them.
const (
	BundleType   = "delta.bundle" // deltas of several lanes
	SnapshotType = "run.snapshot" // the fold of everything up to it
	GapType      = "stream.gap"   // says what this client was spared
)

// MaxText is where a merged text stops growing and the next event begins, in bytes.
const MaxText = 32 << 10

// Out is one record of a view.
type Out struct {
	schema.Record
	First  schema.Seq // first event that it stands for, hidden ones included
	From   schema.Seq // first event that it shows: a client that has it must not get this record
	Spared bool       // something before it was left out for this client, whose cursor stays before that
}

// span is a run of deltas that is still growing.
type span struct {
	since         time.Time     // when the first member came; a Pacer sets it
	last          schema.Record // envelope of the newest member
	from          schema.Seq    // seq of the first member
	first         schema.Record // the first member, as long as it is the only one
	before, after []byte        // payload around the text: what all members have alike
	attributes    []byte        // the same of the envelope
	one           []byte        // text of the first member
	text          []byte        // of all members; nil while there is one
	n             int
}

// newSpan begins with a record, if that is a delta that can be merged.
func newSpan(r schema.Record) (span, bool) {
	if !r.IsDelta() || string(r.Type) == schema.TypeDataDelta {
		return span{}, false // data is no text, also where some stands beside it
	}
	before, text, after, ok := schema.SplitText(r.Payload())
	if !ok {
		return span{}, false
	}
	attributes := r.Attributes()
	if attributes == nil {
		return span{}, false
	}
	return span{last: r, first: r, from: r.Seq, before: before, after: after, attributes: attributes, one: text,
		n: 1}, true
}

// join adds a later span when it continues this one: same lane, same kind, same place. Other fields
// stay where all members have them alike.
func (s *span) join(t *span) bool {
	if !bytes.Equal(s.last.Type, t.last.Type) || !bytes.Equal(s.last.Child, t.last.Child) {
		return false
	}
	if !bytes.Equal(s.before, t.before) || !bytes.Equal(s.after, t.after) {
		before, after, ok := schema.CommonFields(s.before, s.after, t.before, t.after)
		if !ok {
			return false
		}
		s.before, s.after = before, after
	}
	if !bytes.Equal(s.attributes, t.attributes) {
		attributes, ok := schema.CommonAttributes(s.attributes, t.attributes)
		if !ok {
			return false
		}
		s.attributes = attributes
	}
	s.absorb(t)
	return true
}

// size is the length of the text, in bytes.
func (s *span) size() int {
	if s.text != nil {
		return len(s.text)
	}
	return len(s.one)
}

// absorb adds a later span's members.
func (s *span) absorb(t *span) {
	if s.text == nil {
		s.text = append(make([]byte, 0, max(256, 2*len(s.one))), s.one...)
	}
	if t.text != nil {
		s.text = append(s.text, t.text...)
	} else {
		s.text = append(s.text, t.one...)
	}
	s.last, s.n = t.last, s.n+t.n
}

// payload returns the payload of all members.
func (s *span) payload() []byte {
	if s.text == nil {
		return s.first.Payload()
	}
	return slices.Concat(s.before, s.text, s.after)
}

// record makes the event that stands for all members and what was hidden before them.
func (s *span) record(first schema.Seq) Out {
	if s.n == 1 {
		return show(s.first, first)
	}
	return Out{Record: scan(s.last.AppendMerged(nil, first, s.attributes, s.payload()), s.last), First: first,
		From: s.from}
}

// show returns a record as it is, but for the events that are hidden before it.
func show(r schema.Record, first schema.Seq) Out {
	out := Out{Record: r, First: first, From: r.Seq}
	if first != r.Seq {
		out.Record = scan(r.AppendSpan(nil, first, nil), r)
	}
	return out
}

// Since returns a record as the first that a client is shown which has everything up to first-1.
func (o Out) Since(first schema.Seq) Out {
	if o.First == first {
		return o
	}
	o.Record, o.First = scan(o.AppendSpan(nil, first, nil), o.Record), first
	return o
}

// gap makes the event that reports that a client was spared n events from first on, of which r was the last. Its
// place is the one before the first of them: a client that goes on behind it gets them.
func gap(r schema.Record, first schema.Seq, n int) Out {
	at := r
	at.Seq = first - 1
	line := at.AppendBundle(nil, GapType, at.Seq, func(dst []byte) []byte {
		dst = strconv.AppendInt(append(dst, `{"first_seq":`...), int64(first), 10)
		dst = strconv.AppendInt(append(dst, `,"last_seq":`...), int64(r.Seq), 10)
		dst = strconv.AppendInt(append(dst, `,"dropped_count":`...), int64(n), 10)
		return append(dst, `,"dropped_code":"`+schema.CodeDropped+`"}`...)
	})
	// The id is its own: a client that knows events by their ids must not take a later one for it.
	_, rest, _ := bytes.Cut(line, []byte(`","ts":"`))
	line = slices.Concat([]byte(`{"id":"gap_`), []byte(first.String()), []byte("_"), []byte(r.Seq.String()),
		[]byte(`","ts":"`), rest)
	return Out{Record: scan(line, r), First: at.Seq, From: at.Seq, Spared: true}
}

// WithDropped adds the number of events that this client did not get to the payload of a final lifecycle
// (native §4 R4).
func (o Out) WithDropped(n int) Out {
	payload := o.Payload()
	if n == 0 || len(payload) < 2 {
		return o
	}
	more := append([]byte(nil), payload[:len(payload)-1]...)
	if len(bytes.TrimSpace(payload[1:len(payload)-1])) > 0 {
		more = append(more, ',')
	}
	more = strconv.AppendInt(append(more, `"dropped_count":`...), int64(n), 10)
	more = append(more, `,"dropped_code":"`+schema.CodeDropped+`"}`...)
	o.Record = scan(o.AppendSpan(nil, o.First, more), o.Record)
	return o
}

// together makes one event of all spans.
func together(spans []span, first schema.Seq) Out {
	if len(spans) == 1 {
		return spans[0].record(first)
	}
	return bundle(spans, first)
}

// bundle makes one event of several spans in their order. Neighbours within a lane are joined, which
// they may not have been in the log.
func bundle(spans []span, first schema.Seq) Out {
	lanes := make(map[string]int, len(spans)) // child → its newest part
	var parts []span
	for _, s := range spans {
		if i, ok := lanes[string(s.last.Child)]; ok && parts[i].join(&s) {
			continue
		}
		lanes[string(s.last.Child)] = len(parts)
		parts = append(parts, s)
	}
	last := spans[len(spans)-1].last
	if len(parts) == 1 {
		return parts[0].record(first)
	}
	line := last.AppendBundle(nil, BundleType, first, func(dst []byte) []byte {
		dst = append(dst, `{"deltas":[`...)
		for i := range parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = parts[i].appendPart(dst)
		}
		return append(dst, `]}`...)
	})
	r, err := schema.ScanLine(line)
	if err != nil { // ids and types were scanned before
		return spans[0].record(first)
	}
	return Out{Record: r, First: first, From: spans[0].from}
}

// appendPart appends {"type","child_id",<attributes>,"payload"}.
func (s *span) appendPart(dst []byte) []byte {
	dst = append(append(append(dst, `{"type":"`...), s.last.Type...), `","child_id":`...)
	if s.last.Child == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, '"'), s.last.Child...), '"')
	}
	dst = append(append(dst, s.attributes...), `,"payload":`...)
	return append(append(dst, s.payload()...), '}')
}

// scan reads a line that was built from a scanned one; it cannot fail where that did not.
func scan(line []byte, was schema.Record) schema.Record {
	r, err := schema.ScanLine(line)
	if err != nil {
		return was
	}
	return r
}
