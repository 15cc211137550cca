package metis

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// span is where a message is: the records with which it begins and ends.
type span struct {
	start, end schema.Seq
	model      string
	id         uint64 // assemble.IDSum of the producer's id of it
}

const (
	// maxRecent is how many messages a snapshot has (3.5).
	maxRecent = 50
	// maxSpans bounds the messages of all workers that are remembered; a worker has fewRecent beyond it.
	maxSpans  = 1 << 15
	fewRecent = 8
	// maxWalk bounds the records between the ends of a message that are read for what its end does not have.
	maxWalk = 1 << 12
)

// list adds a message that is complete. make writes it.
func (p *Projector) list(s *session, at span, make func(jsonscan.Object) jsonscan.Object) {
	s.recent = append(s.recent, at)
	most := maxRecent
	if s.child != "" {
		if p.spans++; p.spans > maxSpans {
			most = fewRecent
		}
	}
	if n := len(s.recent) - most; n > 0 {
		s.recent = slices.Delete(s.recent, 0, n)
		if s.child != "" {
			p.spans -= n
		}
	}
	slot := p.rec.listed
	p.rec.listed++
	if p.rec.out == nil || p.req.Form != formMessages || s.child != p.req.Child {
		return
	}
	data := p.rec.out.Text(make(nil))
	id := appendID(nil, messagePrefix, p.run, dialect.Place{Seq: at.start})
	p.rec.out.Add(dialect.Frame{Data: data, Token: id, Slot: slot})
}

// AppendSession appends the summary of the session (3.4): what of it only a route knows, its caller adds.
func (p *Projector) AppendSession(dst []byte) []byte {
	s := p.sessions[p.req.Child]
	if s == nil {
		s = &session{}
	}
	o := append(jsonscan.Object(dst), '{').Str("id", s.id(p.run)).Str("workspace_path", s.workspace).Str("active_model",
		cmp.Or(s.model, unknown)).
		Str("routing_policy_version", unmanaged).Float("cost_so_far_usd", s.total.used.cost).Int("turn_count", int64(s.turns))
	status := ""
	if s.turn.seq > 0 {
		status = "in_flight"
	}
	o = o.NullStr("current_turn_id", p.Turn()).NullStr("current_turn_status", status)
	if s.child != "" {
		parent := s.parent
		if parent == "" {
			parent = p.run
		}
		o = o.Str("parent_session_id", parent)
	}
	return append(appendMicros(append(o.Name("created_at"), '"'), []byte(s.ts)), `"}`...)
}

// Records walks the records of the root run with after < seq ≤ through. What is no longer kept is left out, without an
// error.
type Records func(after, through schema.Seq) iter.Seq2[schema.Record, error]

// AppendSnapshot appends the snapshot frame (3.4) of all that the projector was fed: the summary, the newest 50
// messages, the one under way last, and the id of the newest event. It reads the records of those messages.
func (p *Projector) AppendSnapshot(dst []byte, read Records) ([]byte, error) {
	s := p.sessions[p.req.Child]
	if s == nil {
		s = &session{}
	}
	recent, all := s.recent, [][]byte(nil)
	l := p.reading.Lane(s.child)
	under := l != nil && l.Message != nil && s.open != nil
	if under && len(recent) == maxRecent {
		recent = recent[1:]
	}
	for _, at := range recent {
		m, err := p.readMessage(s, at, read)
		if err != nil {
			return dst, err
		}
		if m != nil {
			all = append(all, m)
		}
	}
	if under {
		o := appendHead(nil, p.run, s.id(p.run), l.Message.Role, s.open.start)
		content := []byte("[]")
		if _, kept := l.Message.Size(); kept {
			content = l.Message.Content()
		}
		all = append(all, appendMetadata(appendContents(o, content, l.Message, true), s.open, usage{}, "partial",
			[]byte(s.open.ts)))
	}
	o := append(jsonscan.Object(dst), '{').Str("type", "snapshot").Name("session")
	o = append(jsonscan.Object(p.AppendSession(o)).Name("messages"), '[')
	o = append(append(o, bytes.Join(all, []byte{','})...), ']')
	return o.NullStr("snapshot_at_event_id", p.LastEventID()).End(), nil
}

// readMessage reads a message from its records, as its page has it; nil when they are not kept. What is between them
// and starts a message or names another one has not ended it: it is late, or the repeat of one of which these records
// know nothing.
func (p *Projector) readMessage(s *session, at span, read Records) (m []byte, err error) {
	q := newProjector(MessagesRequest(p.run))
	q.req.Child, q.run = s.child, p.run
	q.of(s.child).model = at.model
	var out dialect.Frames
	parts := [][2]schema.Seq{{at.start - 1, at.end}}
	if at.end-at.start > maxWalk {
		parts = [][2]schema.Seq{{at.start - 1, at.start}, {at.end - 1, at.end}}
	}
	id := MessageID(p.run, at.start)
	for _, part := range parts {
		for r, err := range read(part[0], part[1]) {
			if err == nil && string(r.Child) == s.child && !at.hasElsewhere(r) {
				err = q.Project(&out, r)
			}
			if err != nil {
				return nil, err
			}
			for _, f := range out.List {
				if string(f.Token) == id {
					m = bytes.Clone(f.Data)
				}
			}
			out.Reset()
		}
	}
	return m, nil
}

// hasElsewhere reports whether a record between the ends of the message is of another one.
func (at span) hasElsewhere(r schema.Record) bool {
	if r.Seq <= at.start || r.Seq >= at.end {
		return false
	}
	switch string(r.Type) {
	case schema.TypeMessageStart:
		return true
	case schema.TypeMessageEnd, schema.TypeBlockStart, schema.TypeBlockEnd:
		id := assemble.IDSum(schema.Field(r.Payload(), "message_id"))
		return id != 0 && id != at.id
	}
	return false
}
