package sessions

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// maxPageBytes bounds the objects of a page; it ends with the one that crosses it.
const maxPageBytes = 4 << 20

// list is an answer under way: objects in the order in which they are found.
type list struct {
	limit int
	items []listed
	bytes int
}

type listed struct {
	id   string
	data []byte
}

func (l *list) add(id string, data []byte) {
	l.items = append(l.items, listed{id, data})
	l.bytes += len(data)
}

func (l *list) full() bool { return len(l.items) >= l.limit || l.bytes > maxPageBytes }

// data appends the objects, with commas between them.
func (l *list) data(dst []byte) []byte {
	dst = slices.Grow(dst, l.bytes+len(l.items)+256)
	for i, it := range l.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, it.data...)
	}
	return dst
}

// body is the page: {data, next_page, first_id, last_id, has_more} (qoder §1.5). next is where it goes on; "" when
// there is no more.
func (l *list) body(w window, next string) []byte {
	if w.back {
		slices.Reverse(l.items)
	}
	b := append(l.data([]byte(`{"data":[`)), `],"next_page":`...)
	first, last := "", ""
	if len(l.items) > 0 {
		first, last = l.items[0].id, l.items[len(l.items)-1].id
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

// A token is base64url of "1", the order (a, d), the direction of reading (f, b), the place, a dot and a check sum
// over all that and the list. Nobody is kept from making one: it says nothing that its reader may not ask for.
func (w *window) token(place string) string {
	text := map[bool]string{false: "1a", true: "1d"}[w.desc] + map[bool]string{false: "f", true: "b"}[w.back] + place
	return base64.RawURLEncoding.EncodeToString([]byte(text + "." + sumOf(w.scope, text)))
}

func sumOf(scope, text string) string {
	sum := sha256.Sum256([]byte("page\x00" + scope + "\x00" + text))
	return hex.EncodeToString(sum[:6])
}

// maxToken is the longest token, in bytes.
const maxToken = 512

// open reads a token: page becomes the place, and order and direction are those of the page before.
func (w *window) open(order string) error {
	bad := dialect.Refuse(schema.ErrBadCursor, "page is not from this list")
	if len(w.page) > maxToken {
		return bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(w.page)
	if err != nil {
		return bad
	}
	i := strings.LastIndexByte(string(raw), '.')
	if i < 4 {
		return bad
	}
	token := w.page
	w.desc, w.back, w.page = raw[1] == 'd', raw[2] == 'b', string(raw[3:i])
	if w.token(w.page) != token { // also the decoder passes over line breaks
		return bad
	}
	if order != "" && w.desc != (order == "desc") {
		return dialect.Refuse(dialect.ErrBadRequest, "page is of the other order")
	}
	return nil
}
