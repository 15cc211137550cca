package qoder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Bounds of what a session says of itself (qoder §1.4).
const (
	maxTitle  = 512 // characters
	maxPairs  = 16  // of metadata
	maxPair   = 64  // characters of a key
	maxValue  = 512 // characters of a value
	maxListed = 500 // elements of a list
	maxRef    = 256 // bytes of an id
)

// CreatePayload checks the body of POST /sessions and returns the payload of session.created. The error wraps
// dialect.ErrBadRequest and is in words for the client.
//
// Fields that the protocol has not got are passed over and not stored: what they hold is nobody's here, and all who
// may read the session would see it. Tokens that resources come with are not stored for the same reason.
func CreatePayload(body []byte) (json.RawMessage, error) {
	fields, err := readBody(body)
	if err != nil {
		return nil, err
	}
	if isNull(fields["agent"]) {
		return nil, refuse("agent", "is required: the id of an agent, or an object with one")
	}
	if !isNull(fields["budget"]) {
		return nil, refuse("budget", "is not supported: nothing here would hold the session to it")
	}
	for _, name := range sessionFields {
		if isNull(fields[name]) {
			delete(fields, name)
		}
	}
	if fields[incrementalField] == nil {
		fields[incrementalField] = []byte(`false`)
	}
	return payloadOf(fields, false)
}

// UpdatePayload does the same for POST /sessions/{id} and session.updated. null takes a field away.
func UpdatePayload(body []byte) (json.RawMessage, error) {
	fields, err := readBody(body)
	if err != nil {
		return nil, err
	}
	if !isNull(fields["budget"]) {
		return nil, refuse("budget", "is not supported: nothing here would hold the session to it")
	}
	for _, name := range []string{"agent", incrementalField} {
		if v := fields[name]; v != nil && isNull(v) {
			return nil, refuse(name, "cannot be taken away")
		}
	}
	return payloadOf(fields, true)
}

// InitialEvents returns the events that the body of POST /sessions wants to be sent at once, as POST
// /sessions/{id}/events would take them. The error wraps dialect.ErrBadRequest.
func InitialEvents(body []byte) ([]json.RawMessage, error) {
	const name, most = "initial_events", 50
	fields, err := readBody(body)
	if err != nil || isNull(fields[name]) {
		return nil, err
	}
	var events []json.RawMessage
	if err := json.Unmarshal(fields[name], &events); err != nil || len(events) > most {
		return nil, refuse(name, "must be a list of at most %d events", most)
	}
	for i, e := range events {
		if typ := text(e, "type"); typ != sentMessage && typ != sentOutcome {
			return nil, refuse(fmt.Sprintf("%s[%d].type", name, i), "must be %s or %s", sentMessage, sentOutcome)
		}
	}
	return events, nil
}

// ParseEvents returns the events of a body {"events":[…]}, 1 to most of them. Other fields are passed over.
// The error wraps dialect.ErrBadRequest.
func ParseEvents(body []byte, most int) ([]json.RawMessage, error) {
	const name = "events"
	fields, err := readBody(body)
	if err != nil {
		return nil, err
	}
	var events []json.RawMessage
	if err := json.Unmarshal(valueOr(fields[name], '[', `null`), &events); err != nil || len(events) == 0 ||
		len(events) > most {
		return nil, refuse(name, "must be a list of 1 to %d events", most)
	}
	return events, nil
}

// sessionFields are what a client may say of a session, in the order in which it is stored.
var sessionFields = []string{
	"agent", "environment_id", "title", "metadata", "resources", "vault_ids", "memory_store_ids", incrementalField,
}

// readBody reads a JSON object. Of fields that stand twice none is right.
func readBody(body []byte) (map[string][]byte, error) {
	if !json.Valid(body) || !utf8.Valid(body) || len(bytes.TrimSpace(body)) == 0 || bytes.TrimSpace(body)[0] != '{' {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "body must be a JSON object, in UTF-8")
	}
	fields := map[string][]byte{}
	err := schema.EachField(body, func(name string, v []byte) error {
		if fields[name] != nil {
			return refuse(quoteShort(name), "stands twice")
		}
		fields[name] = v
		return nil
	})
	return fields, err
}

// payloadOf checks what is there and writes it in one order.
func payloadOf(fields map[string][]byte, patch bool) (json.RawMessage, error) {
	b := []byte{'{'}
	for _, name := range sessionFields {
		v := fields[name]
		if v == nil {
			continue
		}
		if !isNull(v) {
			if err := checkField(name, v, patch); err != nil {
				return nil, err
			}
		}
		if len(v) > schema.MaxSession {
			return nil, refuse(name, "has more than %d bytes", schema.MaxSession)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(appendString(b, name), ':'), withoutTokens(v, 0)...)
	}
	b = append(b, '}')
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "body must be a JSON object")
	}
	if line.Len() > schema.MaxSession {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "body has more than %d bytes of the session's own fields",
			schema.MaxSession)
	}
	return line.Bytes(), nil
}

func checkField(name string, v []byte, patch bool) error {
	switch name {
	case "agent":
		return checkAgent(v, patch)
	case "environment_id":
		return checkRef(name, v)
	case "title":
		if s, ok := jsonscan.Unquote(v); !ok || utf8.RuneCountInString(s) > maxTitle {
			return refuse(name, "must be a string of at most %d characters, or null", maxTitle)
		}
	case "metadata":
		return checkMetadata(v, patch)
	case incrementalField:
		if s := string(v); s != "true" && s != "false" {
			return refuse(name, "must be true or false")
		}
	case "resources":
		return eachElement(name, v, func(param string, v []byte) error {
			if v[0] != '{' || text(v, "type") == "" {
				return refuse(param, "must be an object with a type")
			}
			return nil
		})
	default: // lists of ids
		return eachElement(name, v, checkRef)
	}
	return nil
}

// checkAgent takes an id, or an object with one. What is changed of an agent later needs none.
func checkAgent(v []byte, patch bool) error {
	if isString(v) {
		return checkRef("agent", v)
	}
	if v[0] != '{' {
		return refuse("agent", "must be the id of an agent, or an object with one")
	}
	if id := field(v, "id"); id != nil || !patch {
		if err := checkRef("agent.id", id); err != nil {
			return err
		}
	}
	if typ := field(v, "type"); typ != nil &&
		!slices.Contains([]string{`"agent"`, `"agent_with_overrides"`}, string(typ)) {
		return refuse("agent.type", `must be "agent"`)
	}
	if n := field(v, "version"); !isNull(n) && whole(n) < 1 {
		return refuse("agent.version", "must be a whole number from 1 on")
	}
	return nil
}

func checkRef(param string, v []byte) error {
	if s, ok := jsonscan.Unquote(v); !ok || s == "" || len(s) > maxRef {
		return refuse(param, "must be a string of 1 to %d bytes", maxRef)
	}
	return nil
}

func checkMetadata(v []byte, patch bool) error {
	if v[0] != '{' {
		return refuse("metadata", "must be an object of strings")
	}
	seen := map[string]bool{}
	return schema.EachField(v, func(name string, v []byte) error {
		param := "metadata." + quoteShort(name)
		switch s, ok := jsonscan.Unquote(v); {
		case seen[name]:
			return refuse(param, "stands twice")
		case name == "" || utf8.RuneCountInString(name) > maxPair:
			return refuse(param, "must have a name of 1 to %d characters", maxPair)
		case isNull(v) && patch:
		case !ok || utf8.RuneCountInString(s) > maxValue:
			return refuse(param, "must be a string of at most %d characters", maxValue)
		}
		if seen[name] = true; len(seen) > maxPairs && !patch || len(seen) > 2*maxPairs {
			return refuse("metadata", "has more than %d pairs", maxPairs)
		}
		return nil
	})
}

// eachElement calls fn for the elements of a list.
func eachElement(name string, v []byte, fn func(param string, v []byte) error) error {
	if v[0] != '[' {
		return refuse(name, "must be a list")
	}
	i := 0
	for element := range jsonscan.Elements(v) {
		if i == maxListed {
			return refuse(name, "has more than %d elements", maxListed)
		}
		if err := fn(fmt.Sprintf("%s[%d]", name, i), element); err != nil {
			return err
		}
		i++
	}
	return nil
}

// quoteShort is a client's own name as errors repeat it.
func quoteShort(s string) string {
	if utf8.RuneCountInString(s) > maxPair {
		return string([]rune(s)[:maxPair]) + "…"
	}
	return s
}

func isNull(v []byte) bool { return len(v) == 0 || string(v) == "null" }

const tokenField = "authorization_token"

const maxNested = 128

// withoutTokens returns a value without fields that hold a token, however deep: what is nested
// deeper than maxNested is refused by the log.
func withoutTokens(v []byte, depth int) []byte {
	if depth > maxNested || !bytes.Contains(v, []byte(tokenField)) && !bytes.Contains(v, []byte(`\u`)) {
		return v
	}
	switch v[0] {
	case '{':
		b := []byte{'{'}
		_ = schema.EachField(v, func(name string, v []byte) error { // it is an object
			if name == tokenField {
				return nil
			}
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(appendString(b, name), ':'), withoutTokens(v, depth+1)...)
			return nil
		})
		return append(b, '}')
	case '[':
		b := []byte{'['}
		for element := range jsonscan.Elements(v) {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(b, withoutTokens(element, depth+1)...)
		}
		return append(b, ']')
	}
	return v
}
