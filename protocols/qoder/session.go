package qoder

import (
	"bytes"
	"encoding/json"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// info is what clients have set of the session.
type info struct {
	description json.RawMessage // schema.MergeSession
	created     bool            // as a session, and not only as a run
	incremental bool
	archived    string     // time; "" when it is not
	closed      schema.Seq // where; 0 when it is not
	deleted     bool
}

func (i *info) clone() info { return *i } // the description is replaced, never changed
func (i *info) size() int   { return len(i.description) }

const incrementalField = "incremental_streaming_enabled"

// describe reads what an event has of the session itself. Of children only that their thread is archived.
func (p *Projector) describe() {
	t := p.rec.thread
	if typ := string(p.rec.Type); t.child != "" {
		if typ == schema.TypeSessionArchived && t.archived == "" {
			p.terminate(p.change(t, func(t *thread) { t.archived, t.closed = p.rec.ts, p.rec.Seq }), true)
		}
		return
	}
	old := p.info.description
	p.info.description = schema.MergeSession(old, string(p.rec.Type), p.rec.ts, p.rec.payload)
	switch string(p.rec.Type) {
	case schema.TypeSessionCreated:
		p.info.created = true
		p.stream()
	case schema.TypeSessionUpdated:
		p.stream()
		if !bytes.Equal(old, p.info.description) {
			p.appendUpdate()
		}
	case schema.TypeSessionArchived:
		if p.info.archived == "" {
			p.info.archived, p.info.closed = p.rec.ts, p.rec.Seq
			p.emit(emission{typ: "session.status_terminated", all: true, last: true})
		}
	case schema.TypeSessionDeleted:
		if !p.info.deleted {
			p.info.deleted = true
			p.emit(emission{typ: "session.deleted", all: true, last: true})
		}
	}
}

// stream reads whether increments are shown from here on. A session that does not say so has none; a run that is
// no session keeps the dialect's setting.
func (p *Projector) stream() {
	v := field(p.info.description, incrementalField)
	if v != nil || p.info.created {
		p.info.incremental = string(v) == "true"
	}
}

// appendUpdate appends what has changed: metadata as all of it is now, everything else as the client sent it.
func (p *Projector) appendUpdate() {
	body := appendRest(nil, p.rec.payload, "metadata")
	if field(p.rec.payload, "metadata") != nil {
		body = append(append(body, `,"metadata":`...), valueOr(field(p.info.description, "metadata"), '{', `{}`)...)
	}
	p.emit(emission{typ: "session.updated", body: body})
}

// IsArchived reports whether the session takes no more events.
func (p *Projector) IsArchived() bool { return p.info.archived != "" }

// IsDeleted reports whether the session is not there any more.
func (p *Projector) IsDeleted() bool { return p.info.deleted }

// Busy reports whether there is something to cancel: a turn is under way, of the coordinator, which runs or waits for
// the client, or a message was sent that nobody has begun to answer.
func (p *Projector) Busy() bool {
	t := p.threads.coordinator()
	return t != nil && t.busy()
}

func (t *thread) busy() bool { return t.running || t.stop == stopAction || t.owed > 0 }

// CheckUpdate returns an error unless the session, as it is, can take a payload of UpdatePayload: what it would
// then hold may be too much though the change alone is not. The error wraps dialect.ErrBadRequest.
func (p *Projector) CheckUpdate(payload json.RawMessage) error {
	patch := field(payload, "metadata")
	if len(patch) > 0 && patch[0] == '{' {
		after := schema.MergeSession(p.info.description, schema.TypeSessionUpdated, p.updated, payload)
		if n := countFields(field(after, "metadata")); n > maxPairs {
			return refuse("metadata", "would have %d pairs, more than %d", n, maxPairs)
		}
	}
	if len(p.info.description)+len(payload) > schema.MaxSession {
		return dialect.Refuse(dialect.ErrBadRequest, "the session's own fields would be more than %d bytes",
			schema.MaxSession)
	}
	return nil
}

func countFields(object []byte) (n int) {
	for range jsonscan.Members(object) {
		n++
	}
	return n
}
