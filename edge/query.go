package edge

import (
	"fmt"
	"net/http"
	"net/url"

	"agentstream/edge/dialect"
	"agentstream/edge/shape"
	"agentstream/schema"
)

// query is a request's parameters. Those that are not known are passed over.
type query url.Values

func readQuery(r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("query: %w", dialect.ErrBadRequest)
	}
	return query(values), nil
}

// one returns a parameter that may stand once; "" when it is absent.
func (q query) one(name string) (string, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s is given more than once: %w", name, dialect.ErrBadRequest)
}

// seq returns a position, or none. The error wraps schema.ErrBadCursor.
func (q query) seq(name string, none schema.Seq) (schema.Seq, error) {
	text, err := q.one(name)
	if err != nil || text == "" {
		return none, err
	}
	n, err := schema.ParseCursor(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// number returns a whole number from 1 to most, or none.
func (q query) number(name string, none, most int) (int, error) {
	text, err := q.one(name)
	if err != nil || text == "" {
		return none, err
	}
	n, err := schema.ParseCursor(text) // digits alone, as a cursor
	if err != nil || n < 1 || n > schema.Seq(most) {
		return 0, fmt.Errorf("%s is not a number from 1 to %d: %w", name, most, dialect.ErrBadRequest)
	}
	return int(n), nil
}

// choice returns one of the words, the first when the parameter is absent.
func (q query) choice(name string, words ...string) (string, error) {
	text, err := q.one(name)
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

// filter reads types, child and nested, as streams do.
func (q query) filter() (shape.Filter, error) {
	nested, err := q.choice("nested", "false", "true", "0", "1")
	if err != nil {
		return shape.Filter{}, err
	}
	f := dialect.Filter{
		Children: dialect.SplitList(q["child"]), Types: dialect.SplitList(q["types"]), Nested: nested == "true" || nested == "1",
	}
	if f, err = f.Normal(); err != nil {
		return shape.Filter{}, err
	}
	return shape.NewFilter(f.Children, f.Types, f.Nested), nil
}
