package dialecttest

import (
	"cmp"
	"encoding/json"
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Slots of a record's frames: the same whatever the client asks for. They are the frames' kinds as well.
const (
	slotType = iota
	slotSum
)

// projector shows the type of each record, and behind a text the bytes of all texts so far.
type projector struct {
	req   dialect.Request
	text  int // bytes
	gone  bool
	turns dialect.Spans
	turn  string // that goes on; "": none does
	nth   int    // record of it
}

var _ interface {
	dialect.Stateful
	dialect.Spanner
	dialect.Opener
	dialect.Closer
} = (*projector)(nil)

func (p *projector) Project(out *dialect.Frames, r schema.Record) error {
	typ := string(r.Type)
	if typ == schema.TypeTextDelta {
		p.text += len(r.Payload())
	}
	p.gone = p.gone || typ == schema.TypeSessionDeleted
	turn := p.count(typ, r)
	if out == nil || p.req.Child != "" && string(r.Child) != p.req.Child || p.req.Span != "" && p.req.Span != turn {
		return nil
	}
	if p.req.Span == "" {
		p.frame(out, r, slotType, fmt.Appendf(nil, `{"seq":%d,"type":%q,"child":%q}`, r.Seq, r.Type, r.Child))
	} else {
		p.frame(out, r, slotType, fmt.Appendf(nil, `{"turn":%d,"nth":%d,"type":%q}`, p.turns.Find(turn).Number, p.nth, r.Type))
	}
	out.List[0].Again = typ == schema.TypeTurnStart // who begins within a turn is told so
	if typ == schema.TypeTextDelta {
		p.frame(out, r, slotSum, fmt.Appendf(nil, `{"seq":%d,"sum":%d}`, r.Seq, p.text))
	}
	if n := len(out.List); (p.req.Stream == "ask" || p.req.Span != "") && typ == schema.TypeTurnEnd {
		out.List[n-1].Last = true // the stream ends with its turn, the run goes on
	}
	return nil
}

// count returns the turn that a record is of.
func (p *projector) count(typ string, r schema.Record) (turn string) {
	if typ == schema.TypeTurnStart && p.turn == "" {
		var of struct {
			TurnID string `json:"turn_id"`
		}
		if json.Unmarshal(r.Payload(), &of) == nil && of.TurnID != "" {
			p.turn, p.nth = of.TurnID, 0
			p.turns.Begin(p.turn, r.Seq)
		}
	}
	turn = p.turn
	p.nth++
	if typ == schema.TypeTurnEnd {
		p.turns.End(turn, r.Seq)
		p.turn = ""
	}
	return turn
}

// Span finds a turn.
func (p *projector) Span(req dialect.Request) dialect.Span { return p.turns.Find(req.Span) }

// frame appends a frame with its id, which is of the run or child that the client named.
func (p *projector) frame(out *dialect.Frames, r schema.Record, slot int, data []byte) {
	at := dialect.Place{Seq: r.Seq, Slot: slot}
	id := at.AppendID(nil, cmp.Or(p.req.Child, p.req.Run))
	p.add(out, dialect.Frame{Event: []byte("sample"), Data: data, Token: id, Slot: slot, Lane: r.Child, Kind: slot})
}

// add appends a frame, in the form of the stream.
func (p *projector) add(out *dialect.Frames, f dialect.Frame) {
	if p.req.Stream == "watch" {
		f.Data = wrap(f.Data)
	}
	out.Add(f)
}

// Open acknowledges the stream. One that begins at the newest event gets what was said before it as a snapshot.
func (p *projector) Open(out *dialect.Frames, after schema.Seq) error {
	out.Again = p.turns.Find(p.turn).First
	if p.req.Newest {
		p.add(out, dialect.Frame{Event: []byte("snapshot"), Data: fmt.Appendf(nil, `{"after":%d,"sum":%d}`, after, p.text)})
		return nil
	}
	p.add(out, dialect.Frame{Event: []byte("hello"), Data: fmt.Appendf(nil, `{"after":%d}`, after)})
	return nil
}

// Close appends the frame behind the last record.
func (p *projector) Close(out *dialect.Frames) error {
	p.add(out, dialect.Frame{Event: []byte("bye"), Data: fmt.Appendf(nil, `{"sum":%d}`, p.text)})
	return nil
}

func (p *projector) For(req dialect.Request) dialect.Stateful {
	q := *p
	q.req, q.turns = req, p.turns.Clone()
	return &q
}

func (p *projector) Size() int { return 256 + p.turns.Size() }

func (p *projector) Admit(dialect.Request) error {
	if p.gone {
		return dialect.Refuse(dialect.ErrNotFound, "it was deleted")
	}
	return nil
}
