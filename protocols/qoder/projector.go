package qoder

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// Projector reads the records of one session, all of them in order, and makes the frames of one form.
type Projector struct {
	story // what the log says so far
	form  form
	rec   record // the one at hand
	buf   []byte // the frame at hand
	body  []byte // its own fields, while they are written
}

var (
	_ dialect.Stateful = (*Projector)(nil)
	_ dialect.Opener   = (*Projector)(nil)
)

// story is all that a projector remembers. Its parts are copied one by one; what a part points at is never
// changed once a copy may share it.
type story struct {
	session  string     // id; "" before the first record
	last     schema.Seq // the newest record
	origin   string     // time of the first record
	updated  string     // time of the newest record
	info     info       // session.go
	status   status     // status.go
	threads  threads    // thread.go
	tools    tools      // tools.go
	messages messages   // message.go
	reading  *assemble.Run
}

// record is a record with what is needed of its envelope.
type record struct {
	schema.Record
	ts      string // RFC 3339
	turn    string // turn_id; "" when there is none
	cause   string // id of the event that led to this one; "" when there is none
	payload []byte
	thread  *thread // the lane's
	steps   []assemble.Transition
	slot    int // of the next frame
	out     *dialect.Frames
}

func newProjector(d Dialect, req dialect.Request) *Projector {
	p := &Projector{form: parseForm(req.Form)}
	p.info.incremental, p.reading = d.Increments, assemble.New(limits)
	return p
}

// For returns a copy for a request.
func (p *Projector) For(req dialect.Request) dialect.Stateful {
	q := &Projector{story: p.story, form: parseForm(req.Form)}
	q.info, q.status, q.reading = p.info.clone(), p.status.clone(), p.reading.Clone()
	q.threads, q.tools, q.messages = p.threads.clone(), p.tools.clone(), p.messages.clone()
	return q
}

// Size is about what is remembered, in bytes.
func (p *Projector) Size() int {
	return 512 + p.info.size() + p.threads.size() + p.tools.size() + p.messages.size() + p.reading.Size()
}

// Admit refuses what is not there: a session that was deleted, a thread that it has not got; and a cursor in
// what is archived (qoder §1.6).
func (p *Projector) Admit(req dialect.Request) error {
	if p.info.deleted {
		return dialect.Refuse(dialect.ErrNotFound, "session %s is deleted", req.Run)
	}
	f := parseForm(req.Form)
	archived := p.info.archived != ""
	if f.thread != "" {
		t := p.threads.byID(f.thread)
		if t == nil {
			return dialect.Refuse(dialect.ErrNotFound, "session %s has no such thread", req.Run)
		}
		archived = archived || t.archived != ""
	}
	if archived && req.Cursor.Token != "" {
		return dialect.Refuse(schema.ErrBadCursor, "session or thread is archived")
	}
	return nil
}

// Project appends the frames of the next record that its form shows; with a nil out it only counts the record. A
// payload that does not fit its type is passed over, as everywhere: the log is older than its readers.
func (p *Projector) Project(out *dialect.Frames, r schema.Record) error {
	if err := p.next(out, r); err != nil {
		return err
	}
	p.arrive()
	if string(r.Type) == schema.TypeToolStart { // what it ends is emitted before the agent works on
		p.tell()
		p.stir()
	} else {
		p.stir()
		p.tell()
	}
	switch string(r.Type) {
	case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta, schema.TypeDataDelta,
		schema.TypeMessageStart, schema.TypeBlockStart, schema.TypeBlockEnd:
	case schema.TypeMessageEnd:
		p.spoke()
	case schema.TypeToolStart, schema.TypeToolEnd, schema.TypeInputRequested, schema.TypeInputAnswered:
		p.tool()
		p.lapse()
	case schema.TypeModelStart, schema.TypeModelEnd, schema.TypeTurnStart, schema.TypeTurnEnd, schema.TypeRunLifecycle:
		p.state()
	case schema.TypeChildSpawn:
		p.spawn()
	case schema.TypeSessionCreated, schema.TypeSessionUpdated, schema.TypeSessionArchived, schema.TypeSessionDeleted:
		p.describe()
	default:
		p.command()
	}
	p.rec = record{}
	return nil
}

// next reads what every record has.
func (p *Projector) next(out *dialect.Frames, r schema.Record) (err error) {
	_, ts, run := r.Envelope()
	if p.session == "" {
		p.session, p.origin = string(run), string(ts)
	}
	p.last, p.updated = r.Seq, string(ts)
	p.rec = record{Record: r, ts: p.updated, out: out}
	if p.rec.steps, err = p.reading.Next(r); err != nil {
		return err
	}
	head := p.reading.Head()
	p.rec.payload, p.rec.turn, p.rec.cause = head.Payload, head.Turn, head.Cause
	if p.rec.thread = p.threads.lanes.m[string(r.Child)]; p.rec.thread == nil {
		p.rec.thread = p.threads.of(p, string(r.Child))
	}
	if p.rec.turn == "" {
		p.rec.turn = p.rec.thread.turn
	}
	return nil
}

// emission is a frame before it has an id.
type emission struct {
	typ     string
	id      string  // "": that of the record and slot
	thread  *thread // whose it is; nil: the record's
	also    bool    // shown in the session as well, when it is of a child
	preview bool    // only shown to those who asked for previews; has no id of its own in its JSON
	turn    string  // "": the record's
	body    []byte  // fields behind the common ones, each with a comma before it
	all     bool    // shown in every form
	last    bool    // the stream ends behind it; of what is a child's, the child's own
}

// id returns the id that the next frame will have.
func (p *Projector) nextID() string { return eventID(p.session, p.rec.Seq, p.rec.slot) }

// emit appends a frame, if this form shows it. Every frame takes a slot, shown or not, so that ids are the same
// in all forms. It returns the frame's id.
func (p *Projector) emit(e emission) string {
	slot := p.rec.slot
	p.rec.slot++
	if e.thread == nil {
		e.thread = p.rec.thread
	}
	shown := p.rec.out != nil && slot <= maxSlot && p.isShown(e)
	id := e.id
	if id == "" {
		id = eventID(p.session, p.rec.Seq, slot)
	}
	if !shown {
		return id
	}
	b := p.buf[:0]
	if e.preview {
		b = append(append(append(b, `{"type":"`...), e.typ...), '"')
	} else {
		b = p.appendCommon(b, e, id)
	}
	b = append(append(b, e.body...), '}')
	n := len(b)
	if e.preview {
		b = append(append(b, e.typ...), id...)
	}
	p.buf = b
	data := p.rec.out.Text(b)
	// not the session with one of its threads
	f := dialect.Frame{Data: data[:n:n], Last: e.last && (e.all || e.thread.id == p.form.thread)}
	if e.preview {
		f.Event, f.Token, f.Again = data[n:n+len(e.typ):n+len(e.typ)], data[n+len(e.typ):], true
	} else { // they stand in it
		f.Again = f.Last // who begins behind the end must hear of it
		f.Token = data[idAt : idAt+len(id) : idAt+len(id)]
		at := idAt + len(id) + typeAt
		f.Event = data[at : at+len(e.typ) : at+len(e.typ)]
	}
	p.rec.out.Add(f)
	return id
}

// Where an event's object has its id, and how far behind that its type.
const (
	idAt   = len(`{"id":"`)
	typeAt = len(`","type":"`)
)

// appendCommon begins an event's object with what all events have (qoder §1.7).
func (p *Projector) appendCommon(b []byte, e emission, id string) []byte {
	b = append(append(b, `{"id":"`...), id...)
	b = append(append(b, `","type":"`...), e.typ...)
	b = append(append(b, `","session_id":"`...), p.session...)
	b = append(append(b, `","session_thread_id":"`...), e.thread.id...)
	b = append(b, `","turn_id":`...)
	if e.turn == "" {
		e.turn = p.rec.turn
	}
	if e.turn == "" {
		b = append(b, `null`...)
	} else {
		b = appendString(b, e.turn)
	}
	b = append(append(b, `,"created_at":"`...), p.rec.ts...)
	b = append(append(b, `","processed_at":"`...), p.rec.ts...)
	return append(b, `","schema_version":"1.0"`...)
}

// isShown reports whether a frame belongs to what this client is shown. The coordinator's thread is shown as
// the session.
func (p *Projector) isShown(e emission) bool {
	switch {
	case p.form.silent:
		return false
	case e.all || e.thread.id == p.form.thread:
		return true
	case p.form.thread == "":
		return e.thread.child == "" || e.also
	}
	return e.also && p.form.thread == p.threads.coordinator().id
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// field returns the untouched value of a field of a JSON object, nil when there is none.
func field(object []byte, name string) []byte { return schema.Field(object, name) }

// text returns a field that is a string, decoded; "" otherwise.
func text(object []byte, name string) string {
	s, _ := jsonscan.Unquote(field(object, name))
	return s
}
