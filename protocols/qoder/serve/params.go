package serve

import (
	"slices"
	"strings"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// params are a request's parameters. Those that are not known are passed over.
type params map[string][]string

func readParams(x *protocol.Call) (params, error) {
	q, err := x.Query()
	return params(q), err
}

// one returns a parameter that may stand once; "" when it is absent.
func (q params) one(name string) (string, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", dialect.Refuse(dialect.ErrBadRequest, "%s is given more than once", name)
}

// choice returns one of the words, or "" when the parameter is absent.
func (q params) choice(name string, words ...string) (string, error) {
	text, err := q.one(name)
	if err == nil && text != "" && !slices.Contains(words, text) {
		err = dialect.Refuse(dialect.ErrBadRequest, "%s is none of %q", name, words)
	}
	return text, err
}

// maxLimit is the largest page: more than the products have (qoder §1.5), whose own pages ask for 200 and 1,000.
const maxLimit = 1000

func (q params) limit(usual int) (int, error) {
	text, err := q.one("limit")
	if err != nil || text == "" {
		return usual, err
	}
	n, err := schema.ParseCursor(text) // digits alone, as a cursor
	if err != nil || n < 1 || n > maxLimit {
		return 0, dialect.BadValue(dialect.ErrBadRequest, "limit", text, "a whole number from 1 to %d", maxLimit)
	}
	return int(n), nil
}

// maxNames bounds the names of one filter.
const maxNames = 128

// names returns the values of a filter, which may be repeated, separated by commas, and have any of these names; nil
// when there is none.
func (q params) names(names ...string) (all []string, err error) {
	for _, name := range names {
		all = append(all, dialect.SplitList(q[name])...)
	}
	if len(all) > maxNames {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "%s has more than %d values", names[0], maxNames)
	}
	return all, nil
}

// checkNames returns an error unless all names are of a set.
func checkNames(param string, names, set []string) error {
	for _, name := range names {
		if !slices.Contains(set, name) {
			return dialect.Refuse(dialect.ErrBadRequest, "%s is none of %q", param, set)
		}
	}
	return nil
}

// span is a time from one moment on and before another; zero is no bound.
type span struct{ from, to time.Time }

func (s span) all() bool { return s.from.IsZero() && s.to.IsZero() }

// has reports whether a time, as events have it, lies in the span. What is no time does not.
func (s span) has(ts []byte) bool {
	t, err := time.Parse(time.RFC3339Nano, string(ts))
	return err == nil && !t.Before(s.from) && (s.to.IsZero() || t.Before(s.to))
}

// creationSpan reads created_at[gt], [gte], [lt] and [lte].
func (q params) creationSpan() (s span, err error) {
	for _, bound := range []struct {
		name         string
		upper, later bool
	}{{"gt", false, true}, {"gte", false, false}, {"lt", true, false}, {"lte", true, true}} {
		name := "created_at[" + bound.name + "]"
		text, err := q.one(name)
		if err != nil {
			return s, err
		}
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, strings.Replace(text, " ", "+", 1)) // a plus sign that was not escaped
		if err != nil {
			return s, dialect.Refuse(dialect.ErrBadRequest, "%s is not an RFC 3339 time", name)
		}
		if t = t.UTC(); bound.later {
			t = t.Add(1) // the next moment there is
		}
		switch {
		case bound.upper && (s.to.IsZero() || t.Before(s.to)):
			s.to = t
		case !bound.upper && t.After(s.from):
			s.from = t
		}
	}
	return s, nil
}
