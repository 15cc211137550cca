package qoder

import (
	"encoding/json"

	"agentstream/schema"
)

// info is what was said of the session.
type info struct {
	description json.RawMessage // schema.MergeSession
	incremental bool
	archived    string // time; "" when it is not
	deleted     bool
}

func (i *info) clone() info { return *i } // the description is replaced, never changed
func (i *info) size() int   { return len(i.description) }

// describe reads what is said of the session itself.
func (p *Projector) describe() {}

// CreatePayload checks the body of POST /sessions and gives the payload of session.created. The error wraps
// dialect.ErrBadRequest and is in words for the client.
func CreatePayload(body []byte) (json.RawMessage, error) { return body, nil }

// UpdatePayload does the same for POST /sessions/{id} and session.updated.
func UpdatePayload(body []byte) (json.RawMessage, error) { return body, nil }

// AppendSession appends the session's object as of the newest record (qoder §1.4).
func (p *Projector) AppendSession(dst []byte) []byte { return dst }

// Archived says that the session takes no more events.
func (p *Projector) Archived() bool { return p.info.archived != "" }

// Running says that a turn is under way.
func (p *Projector) Running() bool { return false }

// AppendListed appends the object of a session of a list, of which less is known.
func AppendListed(dst []byte, r *schema.RunInfo) []byte { return dst }
