package serve

import (
	"fmt"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// pageBody is the page: {data, next_page, first_id, last_id, has_more} (qoder §1.5). next is where it goes on; "" when
// there is no more.
func pageBody(l *protocol.Page, w window, next string) []byte {
	if w.back {
		slices.Reverse(l.Items)
	}
	b := append(l.Append([]byte(`{"data":[`)), `],"next_page":`...)
	first, last := "", ""
	if len(l.Items) > 0 {
		first, last = l.Items[0].ID, l.Items[len(l.Items)-1].ID
	}
	token := ""
	if next != "" {
		token = w.token(next)
	}
	b = append(appendNullable(b, token), `,"first_id":`...)
	b = append(appendNullable(b, first), `,"last_id":`...)
	b = append(appendNullable(b, last), `,"has_more":`...)
	return fmt.Appendf(b, "%t}", next != "")
}

// appendNullable appends an id or a token, which need no escapes, or null for none.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// window is the part of a list that a request asks for.
type window struct {
	scope string // which list
	desc  bool   // its order
	back  bool   // read against its order: what is in front of a place, the nearest first
	limit int

	page   string // where a page before it has ended; "" for none
	after  string // id of the object that it follows; "" for none
	before string // id of the object that it precedes; "" for none
}

// down reports whether what is older is read later.
func (w *window) down() bool { return w.desc != w.back }

// readWindow reads limit, order, and one of page, after_id and before_id. usual is the order when none is asked for.
func (a routes) readWindow(q params, usual, scope string) (w window, err error) {
	w = window{scope: scope}
	if w.limit, err = q.limit(a.limit); err != nil {
		return w, err
	}
	order, err := q.choice("order", "asc", "desc")
	if err != nil {
		return w, err
	}
	given := 0
	for name, into := range map[string]*string{"page": &w.page, "after_id": &w.after, "before_id": &w.before} {
		if *into, err = q.one(name); err != nil {
			return w, err
		}
		if *into != "" {
			given++
		}
	}
	if given > 1 {
		return w, dialect.Refuse(dialect.ErrBadRequest, "more than one of page, after_id and before_id")
	}
	w.back = w.before != ""
	if w.page != "" {
		return w, w.open(order)
	}
	if order == "" {
		order = usual
	}
	w.desc = order == "desc"
	return w, nil
}

// token is "1", the order (a, d), the direction of reading (f, b) and the place.
func (w *window) token(place string) string {
	text := map[bool]string{false: "1a", true: "1d"}[w.desc] + map[bool]string{false: "f", true: "b"}[w.back] + place
	return protocol.PageToken(w.scope, text)
}

// open reads a token: page becomes the place, and order and direction are those of the page before.
func (w *window) open(order string) error {
	bad := dialect.Refuse(schema.ErrBadCursor, "page is not from this list")
	token := w.page
	text, ok := protocol.ReadPageToken(w.scope, token)
	if !ok || len(text) < 4 {
		return bad
	}
	w.desc, w.back, w.page = text[1] == 'd', text[2] == 'b', text[3:]
	if w.token(w.page) != token {
		return bad
	}
	if order != "" && w.desc != (order == "desc") {
		return dialect.Refuse(dialect.ErrBadRequest, "page is of the other order")
	}
	return nil
}
