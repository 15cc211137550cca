package protocol

import (
	"fmt"
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
		return nil, fmt.Errorf("query: %w", dialect.ErrBadRequest)
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
	return "", fmt.Errorf("%s is given more than once: %w", name, dialect.ErrBadRequest)
}

// Seq returns a position, or none. The error wraps schema.ErrBadCursor.
func (q Query) Seq(name string, none schema.Seq) (schema.Seq, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return none, err
	}
	n, err := schema.ParseCursor(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
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
		return 0, fmt.Errorf("%s is not a number from 1 to %d: %w", name, most, dialect.ErrBadRequest)
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
	return "", fmt.Errorf("%s is none of %q: %w", name, words, dialect.ErrBadRequest)
}

// Time reads an RFC 3339 time; the zero time when it is absent.
func (q Query) Time(name string) (time.Time, error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not an RFC 3339 time: %w", name, dialect.ErrBadRequest)
	}
	return t, nil
}
