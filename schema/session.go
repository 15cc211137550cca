package schema

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// MaxSession bounds the description of a session, in bytes, without the times that MergeSession adds to it. Whoever
// takes a change from a client refuses what MergeSession would not take.
const MaxSession = 64 << 10

// Names of the times that MergeSession adds. Payloads cannot set them.
const (
	sessionArchived = "archived_at"
	sessionDeleted  = "deleted_at"
	sessionMetadata = "metadata"

	sessionBy = "by" // who has sent a change
)

// MergeSession returns the description of a session after one more event of the family session: old is the description
// before, nil for none. Fields of session.created and session.updated take the place of those of the same name, null
// takes one away; metadata is merged by its own keys in the same way. session.archived adds archived_at,
// session.deleted deleted_at, both with the event's time; payloads cannot set these, nor by. It is the only reader of
// these events that stores and dialects have, so that all agree. A payload that is no object changes nothing, and
// neither does one that would make the description longer than MaxSession: old is kept whole.
//
// Events of children are not for it: the caller passes over them. Values stay as they were written. Of each name
// the last event decides, so it does no harm to hand in again, in their order, all events from some place on.
// Neither old nor payload is changed, and nothing of payload is kept.
func MergeSession(old json.RawMessage, typ, ts string, payload []byte) json.RawMessage {
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	change, ok := readSession(payload)
	if !ok {
		return old
	}
	s, _ := readSession(old)
	switch typ {
	case TypeSessionCreated, TypeSessionUpdated:
		if !s.change(change) {
			return old
		}
	case TypeSessionArchived:
		s.set(sessionArchived, jsonscan.AppendString(nil, sessionArchived), jsonscan.AppendString(nil, ts))
	case TypeSessionDeleted:
		s.set(sessionDeleted, jsonscan.AppendString(nil, sessionDeleted), jsonscan.AppendString(nil, ts))
	default:
		return old
	}
	return s.append(nil)
}

// sessionFields is an object whose fields keep their order, each name once.
type sessionFields struct {
	list []sessionField
	at   map[string]int // by decoded name
}

// sessionField is a field as it was written, with its name's quotes. value nil: it was taken away.
type sessionField struct {
	name  string
	raw   []byte
	value []byte
}

// readSession takes an object apart. Of two fields with one name the last counts. false: it is no object.
func readSession(object []byte) (s sessionFields, ok bool) {
	if i := jsonscan.SkipSpace(object, 0); i >= len(object) || object[i] != '{' ||
		checkNested(object, maxViewDepth) != nil {
		return s, false
	}
	err := eachRawField(object, func(raw, value []byte) error {
		s.set(jsonscan.DecodeString(raw), raw, value)
		return nil
	})
	return s, err == nil
}

func (s *sessionFields) set(name string, raw, value []byte) {
	if i, ok := s.at[name]; ok {
		s.list[i].value = value
		return
	}
	if s.at == nil {
		s.at = make(map[string]int)
	}
	s.at[name] = len(s.list)
	s.list = append(s.list, sessionField{name, raw, value})
}

// get returns a field's value, nil when there is none.
func (s *sessionFields) get(name string) []byte {
	if i, ok := s.at[name]; ok {
		return s.list[i].value
	}
	return nil
}

// change applies the fields of a payload and reports whether what comes of it is short enough.
func (s *sessionFields) change(by sessionFields) bool {
	for _, f := range by.list {
		switch f.name {
		case sessionArchived, sessionDeleted, sessionBy:
			continue
		case sessionMetadata:
			if f.value[0] == '{' {
				f.value = mergeFields(s.get(sessionMetadata), f.value)
			} else if string(f.value) != "null" {
				continue
			}
		}
		s.put(f)
	}
	size := len("{}")
	for _, f := range s.list {
		if f.value != nil && f.name != sessionArchived && f.name != sessionDeleted {
			size += len(f.raw) + len(f.value) + len(":,")
		}
	}
	return size <= MaxSession
}

// put sets a field, or takes it away.
func (s *sessionFields) put(f sessionField) {
	if string(f.value) == "null" {
		f.value = nil
	}
	if f.value != nil || s.get(f.name) != nil {
		s.set(f.name, f.raw, f.value)
	}
}

// mergeFields merges an object into another, which may be none.
func mergeFields(old, by []byte) []byte {
	s, _ := readSession(old)
	change, ok := readSession(by)
	if !ok {
		return old
	}
	for _, f := range change.list {
		s.put(f)
	}
	return s.append(nil)
}

func (s *sessionFields) append(dst []byte) []byte {
	dst = append(dst, '{')
	for _, f := range s.list {
		if f.value == nil {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, f.raw...)
		dst = append(dst, ':')
		dst = append(dst, f.value...)
	}
	return append(dst, '}')
}

// SessionFacts is what a list of sessions asks of a description.
type SessionFacts struct {
	Agent    string    // id of its agent; "" when it has none, or one by which it cannot be found: see FindableAgent
	Title    string    // cut to MaxReason bytes; "" when it has none
	Tags     []string  // those of at most MaxTag characters, up to MaxTags; nil when it has none
	Metadata []byte    // an object; nil when it has none, or one of more than MaxMetadata bytes
	Archived time.Time // zero: it is not archived
	Deleted  time.Time // zero: it is not deleted
}

// MaxMetadata bounds the metadata that a list has of a run, in bytes.
const MaxMetadata = 4096

// maxAgent bounds the id of an agent by which sessions are found, in bytes.
const maxAgent = 256

// FactsOf reads what MergeSession has written. The agent is a string, or an object with a string id.
func FactsOf(session json.RawMessage) (f SessionFacts) {
	s, ok := readSession(session)
	if !ok {
		return f
	}
	agent := s.get("agent")
	if a, ok := readSession(agent); ok {
		agent = a.get("id")
	}
	if len(agent) > 0 && agent[0] == '"' {
		if id := jsonscan.DecodeString(agent); FindableAgent(id) {
			f.Agent = id
		}
	}
	if title := s.get("title"); len(title) > 0 && title[0] == '"' {
		f.Title = CutReason(jsonscan.DecodeString(title))
	}
	if tags := s.get("tags"); len(tags) > 0 && tags[0] == '[' {
		for element := range jsonscan.Elements(tags) {
			if tag, ok := jsonscan.Unquote(element); ok && isTag(tag) && len(f.Tags) < MaxTags && !slices.Contains(f.Tags, tag) {
				f.Tags = append(f.Tags, tag)
			}
		}
	}
	if m := s.get(sessionMetadata); len(m) <= MaxMetadata {
		f.Metadata = m
	}
	f.Archived, f.Deleted = sessionTime(s.get(sessionArchived)), sessionTime(s.get(sessionDeleted))
	return f
}

// FindableAgent reports whether sessions can be looked for by an agent's id: every database holds such a text. It
// is not empty, has at most 256 bytes of valid UTF-8 and no NUL.
func FindableAgent(id string) bool {
	return id != "" && len(id) <= maxAgent && utf8.ValidString(id) && strings.IndexByte(id, 0) < 0
}

// sessionTime reads a time. One that cannot be read, or that not every database can hold, is the beginning of 1970:
// that something has happened is stated by the field.
func sessionTime(value []byte) time.Time {
	if len(value) == 0 {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, jsonscan.DecodeString(value))
	if t = t.UTC(); err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Unix(0, 0).UTC()
	}
	return t
}
