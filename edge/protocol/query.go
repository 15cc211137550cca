package protocol

import (
	"net/http"
	"net/url"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Query is a request's parameters. Those that are not known are passed over.
type Query url.Values

func ReadQuery(r *http.Request) (Query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest,
			"the query must be percent-encoded, as name=value&name=value: %v", err)
	}
	return Query(values), nil
}

// One returns a parameter that may stand once; "" when it is absent.
func (q Query) One(name string) (string, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", dialect.Refuse(dialect.ErrBadRequest, "%s must be given once, not %d times", name, len(q[name]))
}

// Seq returns a position, or none. The error wraps schema.ErrBadCursor.
func (q Query) Seq(name string, none schema.Seq) (schema.Seq, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return none, err
	}
	n, err := schema.ParseCursor(text)
	if err != nil {
		return 0, dialect.BadValue(schema.ErrBadCursor, name, text, "a seq, a whole number from 0 to %d", schema.MaxSeq)
	}
	return n, nil
}

// Number returns a whole number from 1 to most, or none.
func (q Query) Number(name string, none, most int) (int, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return none, err
	}
	n, err := schema.ParseCursor(text) // digits alone, as a cursor
	if err != nil || n < 1 || n > schema.Seq(most) {
		return 0, dialect.BadValue(dialect.ErrBadRequest, name, text, "a whole number from 1 to %d", most)
	}
	return int(n), nil
}

// Choice returns one of the words, the first when the parameter is absent.
func (q Query) Choice(name string, words ...string) (string, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return words[0], err
	}
	for _, w := range words {
		if text == w {
			return w, nil
		}
	}
	return "", dialect.BadValue(dialect.ErrBadRequest, name, text, "%s", dialect.Words(words...))
}

// Time reads an RFC 3339 time; the zero time when it is absent.
func (q Query) Time(name string) (time.Time, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, dialect.BadValue(dialect.ErrBadRequest, name, text,
			"an RFC 3339 time such as 2026-01-31T12:00:00Z")
	}
	return t, nil
}
