package qoder

import (
	"encoding/json"

	"agentstream/schema"
)

// command reads what people say to the session, and all other records.
func (p *Projector) command() {}

// Command translates an event that a client sends (user.message, user.interrupt, …) into what is appended to the
// log, for a session as it stands at the newest record. The error wraps dialect.ErrBadRequest or
// dialect.ErrNotFound, and is in words for the client.
func (p *Projector) Command(sent json.RawMessage) (schema.Event, error) { return schema.Event{}, nil }
