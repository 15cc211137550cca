package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// maxSent bounds the events of one request.
const maxSent = 256

// send appends what a client says to a session and answers with the events as every reader gets them. All are
// checked before anything is stored. Events for one thread that follow each other are stored all or none; of a
// request for several threads a beginning may be stored when the answer is an error that says so, and a repeat
// with the same Idempotency-Key completes it.
func (a routes) send(ctx context.Context, x *protocol.Call) error {
	opt, body, err := x.BodyWithKey(bodyTypes...)
	if err != nil {
		return err
	}
	said, err := qoder.ParseEvents(body, maxSent)
	if err != nil {
		return err
	}
	run := x.Path("run")
	head, p, err := protocol.Newest[*qoder.Projector](ctx, x, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	m := messages{x: x, run: run, newest: head.Last, keyed: opt.IdempotencyKey != "", said: said, name: "events"}
	if err := m.translate(ctx, p); err != nil {
		return err
	}
	replies := protocol.Page{Limit: len(said)}
	for i, group := range m.byLane() {
		c := change{run: run, events: m.events[group.from:group.to], opt: opt, allow: m.allow(group)}
		if opt.IdempotencyKey != "" {
			c.opt.IdempotencyKey += "\x00" + strconv.Itoa(i)
		}
		receipt, err := store(ctx, x, c)
		if err == nil {
			err = addStored(ctx, x, &replies, c.lane(), receipt)
		}
		if err != nil {
			return partly(err, group.from, len(said))
		}
	}
	x.Reply(http.StatusOK, append(replies.Append([]byte(`{"data":[`)), `]}`...))
	return nil
}

// messages are the events of a request and what they become.
type messages struct {
	x      *protocol.Call
	run    string
	newest schema.Seq
	keyed  bool
	said   []json.RawMessage
	name   string // of the parameter that they are in
	events []schema.Event

	looked  bool                 // repeats were looked for
	repeats map[int]schema.Event // by their places
}

// translate makes all events and holds each to what the log takes.
func (m *messages) translate(ctx context.Context, p *qoder.Projector) error {
	m.events = make([]schema.Event, len(m.said))
	for i := range m.said {
		e, err := m.event(p, i)
		if err != nil && m.keyed {
			if again, ok := m.again(ctx, i); ok {
				e, err = again, nil
			}
		}
		if err != nil {
			return err
		}
		m.events[i] = e
		p.NoteSent(e)
	}
	return nil
}

// event makes one event of a session as it stands for p.
func (m *messages) event(p *qoder.Projector, i int) (schema.Event, error) {
	e, err := p.Command(m.said[i])
	if err == nil {
		e.Payload = m.x.By(e.Payload)
		err = e.Prepare(m.run)
	}
	place := fmt.Sprintf("%s[%d]", m.name, i)
	if wrong := new(qoder.ParamError); errors.As(err, &wrong) {
		return e, &qoder.ParamError{Param: place + "." + wrong.Param, Reason: wrong.Reason}
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", place, err)
	}
	return e, nil
}

// again returns the record that an event became when the session would still take it: an answer, say, that is sent a
// second time. Whether it is a repeat its key decides; if it is not, allow refuses it.
func (m *messages) again(ctx context.Context, i int) (found schema.Event, ok bool) {
	if !m.looked {
		m.looked, m.repeats = true, map[int]schema.Event{}
		m.look(ctx, i)
	}
	found, ok = m.repeats[i]
	return found, ok
}

// look finds the records of a repeat from one of its events on, in one pass: they stand in the order of the events.
func (m *messages) look(ctx context.Context, i int) {
	from := max(m.newest-protocol.MaxScan, 0)
	p, err := protocol.StateAt[*qoder.Projector](ctx, m.x, from, qoder.Request(m.run, ""))
	if err != nil {
		return // the refusal says more
	}
	for r, err := range m.x.Records(ctx, m.run, from, m.newest) {
		if err != nil || i == len(m.said) {
			return
		}
		if bytes.HasPrefix(r.Type, []byte("command.")) {
			e, err := m.event(p, i)
			if err == nil && e.Type == string(r.Type) && e.ChildID == string(r.Child) && bytes.Equal(e.Payload, r.Payload()) {
				m.repeats[i] = e
				i++
			}
		}
		if err := p.Project(nil, r); err != nil {
			return
		}
	}
}

// group is a stretch of events for one lane.
type group struct{ from, to int }

// byLane cuts the events into runs of those for one lane, in their order.
func (m *messages) byLane() (groups []group) {
	for from := 0; from < len(m.events); {
		to := from + 1
		for to < len(m.events) && m.events[to].ChildID == m.events[from].ChildID {
			to++
		}
		groups = append(groups, group{from, to})
		from = to
	}
	return groups
}

// allow holds that the session takes a group as it stands right before it, and that the events mean the same.
func (m *messages) allow(g group) func(*qoder.Projector) error {
	return func(p *qoder.Projector) error {
		if err := alive(p); err != nil {
			return err
		}
		for i := g.from; i < g.to; i++ {
			e, err := m.event(p, i)
			if err != nil {
				return err
			}
			if was := &m.events[i]; e.Type != was.Type || e.ChildID != was.ChildID || !bytes.Equal(e.Payload, was.Payload) {
				return fmt.Errorf("what events[%d] is about has changed: %w", i, schema.ErrConflict)
			}
			p.NoteSent(e)
		}
		return nil
	}
}

// addStored adds the frames of what was stored for a lane, as those who read its thread get them.
func addStored(ctx context.Context, x *protocol.Call, answer *protocol.Page, child string,
	receipt producers.Receipt) error {
	run, thread := x.Path("run"), ""
	if child != "" {
		thread = qoder.ThreadID(run, child)
	}
	p, err := protocol.StateAt[*qoder.Projector](ctx, x, receipt.First-1, qoder.Request(run, thread))
	if err != nil {
		return err
	}
	var out dialect.Frames
	for r, err := range x.Records(ctx, run, receipt.First-1, receipt.Last) {
		if err != nil {
			return err
		}
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			return err
		}
		for _, f := range out.List {
			if !isFromClient(f.Event) {
				continue
			}
			data := bytes.Clone(f.Data)
			if !x.MayRead() {
				data = identityOf(data)
			}
			answer.Add(string(f.Token), data)
		}
	}
	return nil
}

// identityOf is what remains of an event for who may not read: which it is.
func identityOf(event []byte) []byte {
	var b []byte
	names := []string{"id", "type", "session_id", "session_thread_id", "created_at", "schema_version"}
	for i, v := range jsonscan.Values(event, names) {
		if v != nil {
			b = fmt.Appendf(b, `,%q:%s`, names[i], v)
		}
	}
	b[0] = '{' // every event has an id
	return append(b, '}')
}

// isFromClient distinguishes what a client has sent from what its record brings about besides.
func isFromClient(typ []byte) bool {
	return strings.HasPrefix(string(typ), "user.") || string(typ) == "system.message"
}

// partly adds to an error that a beginning is stored all the same.
func partly(err error, stored, of int) error {
	if stored == 0 || errors.As(err, new(*producers.PartialError)) {
		return err
	}
	return &producers.PartialError{Stored: stored, Of: of, Err: err}
}
