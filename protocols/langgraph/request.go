package langgraph

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// maxList bounds the channels, the namespaces and the segments of a namespace of one filter, maxName the bytes of a
// name.
const (
	maxList = dialect.MaxList
	maxName = 1 << 10
)

// Subscribe is what a client asks for: the body of a POST (EventStreamRequest), or the params of
// subscription.subscribe. Names are taken in snake_case and in camelCase.
type Subscribe struct {
	Filter   ThreadFilter
	Since    int64  // number of an event; 0: from the first on
	SinceID  string // id of an event; "": none
	Snapshot bool   // begin with the newest state and go on behind the newest event, when there is no cursor
}

// ParseSubscribe reads one. What is not known is passed over. The error wraps dialect.ErrBadRequest, or
// schema.ErrBadCursor where since is wrong.
func ParseSubscribe(body []byte) (s Subscribe, err error) {
	if s.Filter, err = ParseFilter(body); err != nil {
		return s, err
	}
	p := jsonscan.Fields(nil).Read(body)
	if v := nonNull(p, "since"); v != nil {
		n, ok := jsonscan.WholeNumber(v)
		if !ok || n < 0 || n > MaxNumber {
			return s, dialect.Refuse(schema.ErrBadCursor, "since is not the seq of an event")
		}
		s.Since = n
	}
	v := nonNull(p, "since_event_id")
	if v == nil {
		v = nonNull(p, "sinceEventId")
	}
	if s.SinceID = text(v); v != nil && s.SinceID == "" {
		return s, dialect.Refuse(schema.ErrBadCursor, "since_event_id is not the id of an event")
	}
	switch v := nonNull(p, "snapshot"); string(v) {
	case "", "false":
	case "true":
		s.Snapshot = true
	default:
		return s, refuse("snapshot is neither true nor false")
	}
	return s, nil
}

// nonNull returns a field that is there and not null.
func nonNull(p jsonscan.Fields, name string) []byte {
	if v := p.Raw(name); string(v) != "null" {
		return v
	}
	return nil
}

func refuse(format string, args ...any) error {
	return dialect.Refuse(dialect.ErrBadRequest, format, args...)
}

// ParseFilter reads channels, namespaces and depth. The error wraps dialect.ErrBadRequest.
func ParseFilter(body []byte) (f ThreadFilter, err error) {
	if b := bytes.TrimSpace(body); len(b) == 0 || b[0] != '{' || !json.Valid(b) {
		return f, refuse("the request is not a JSON object")
	}
	p := jsonscan.Fields(nil).Read(bytes.TrimSpace(body))
	if f.Channels, err = channelsOf(nonNull(p, "channels")); err != nil {
		return f, err
	}
	if f.Namespaces, err = namespacesOf(nonNull(p, "namespaces")); err != nil {
		return f, err
	}
	if v := nonNull(p, "depth"); v != nil {
		n, ok := jsonscan.WholeNumber(v)
		if !ok || n < 0 || n > MaxNumber {
			return f, refuse("depth is not a number of levels")
		}
		if f.Namespaces != nil { // the clients' matchers pass it over without prefixes, so that this one must, too
			n := int(n)
			f.Depth = &n
		}
	}
	return f, nil
}

func channelsOf(v []byte) (list []string, err error) {
	if json.Unmarshal(v, &list) != nil || len(list) == 0 || len(list) > maxList {
		return nil, refuse("channels is not a list of 1 to %d names", maxList)
	}
	for _, name := range list {
		if n, ok := strings.CutPrefix(name, customPrefix); ok && n != "" && len(n) <= maxName &&
			!strings.ContainsFunc(n, isControl) {
			continue
		}
		if !slices.Contains(channels[:], name) {
			return nil, refuse("there is no channel %s", quoteWord(name))
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func namespacesOf(v []byte) (list [][]string, err error) {
	var all [][]*string
	if v == nil {
		return nil, nil
	}
	if json.Unmarshal(v, &all) != nil || len(all) > maxList {
		return nil, refuse("namespaces is not a list of at most %d lists of texts", maxList)
	}
	for _, raw := range all {
		prefix := []string{}
		for _, s := range raw {
			if s == nil || len(*s) > maxName {
				return nil, refuse("a segment of a namespace is not a text of at most %d bytes", maxName)
			}
			prefix = append(prefix, *s)
		}
		if raw == nil || len(prefix) > maxList {
			return nil, refuse("a namespace is not a list of at most %d texts", maxList)
		}
		list = append(list, prefix)
	}
	slices.SortFunc(list, slices.Compare)
	return slices.CompactFunc(list, slices.Equal), nil
}

// quoteWord quotes a client's word for a message.
func quoteWord(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// maxFilter is the largest filter of a subscription, in bytes of JSON. An open subscription holds it several times: its
// id says it, in base64, and what the subscriptions of a socket share is found by it.
const maxFilter = 3 << 10

// Request returns the request for a thread. Of several cursors the one that is furthest counts: a client that comes
// back sends what it began with and Last-Event-ID. The error wraps schema.ErrBadID or schema.ErrBadCursor.
func (s Subscribe) Request(thread, lastEventID string) (dialect.Request, error) {
	req := dialect.Request{Run: thread, Stream: StreamName, Detail: dialect.DetailFull, Select: s.Filter.Selection()}
	if n := len(req.Select.Key()); n > maxFilter {
		return req, refuse("the channels and namespaces take %d bytes, %d are allowed", n, maxFilter)
	}
	if err := schema.ValidRunID(thread); err != nil {
		return req, err
	}
	at := PlaceOf(s.Since)
	for _, id := range []string{s.SinceID, lastEventID} {
		if id == "" {
			continue
		}
		place, err := ParseEventID(thread, id)
		if err != nil {
			return req, err
		}
		if Number(place) > Number(at) {
			at = place
		}
	}
	if at.Seq > 0 {
		req.Cursor.Place = at
	} else {
		req.Await, req.Kept, req.Newest = true, true, s.Snapshot
	}
	return req, nil
}
