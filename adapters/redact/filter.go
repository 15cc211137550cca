package redact

import (
	"bytes"
	"strings"
	"sync"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Filter hides the credentials of a request in the events of its call.
type Filter struct {
	secrets [][]byte         // the longest first
	spelled func() [][]byte  // these and other spellings, which errors may have, but no model: the longest first
	ends    [256]bool        // bytes that a part of a secret may end with
	held    map[string]*held // by block
}

// held is the end of a block's text so far that may be the beginning of a secret: it waits for the next piece.
type held struct {
	text  []byte // inside of a JSON string
	event schema.Event
}

// hidden stands in the place of a secret.
const hidden = "…"

func newFilter(secrets []string) *Filter {
	f := &Filter{}
	f.spelled = sync.OnceValue(func() (all [][]byte) { // most calls do not fail
		for _, s := range spell(secrets) {
			all = append(all, []byte(s))
		}
		return all
	})
	for _, s := range secrets {
		f.secrets = append(f.secrets, []byte(s))
		for i := range len(s) - 1 {
			f.ends[s[i]] = true
		}
	}
	return f
}

// Events returns the events without credentials. The slice may be the one that was given, its events are not changed.
// Pieces of text may come later than they did, within their block.
func (f *Filter) Events(events []schema.Event) []schema.Event {
	if len(f.secrets) == 0 {
		return events
	}
	out := events[:0:0]
	kept := true // all so far are as they came
	for i := range events {
		e := events[i]
		list := f.release(&e)
		more := true
		if delta(e.Type) {
			more = f.piece(&e)
		} else {
			e.Payload = f.payload(e.Payload, strings.HasSuffix(e.Type, ".bad_frame"))
		}
		if kept && (len(list) > 0 || !more || !same(e.Payload, events[i].Payload)) {
			out, kept = append(out, events[:i]...), false
		}
		if kept {
			continue
		}
		if out = append(out, list...); more {
			out = append(out, e)
		}
	}
	if kept {
		return events
	}
	return out
}

func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func delta(typ string) bool {
	return typ == schema.TypeTextDelta || typ == schema.TypeReasoningDelta || typ == schema.TypeToolInputDelta
}

// piece cleans a piece of a block's text, behind what is held of the block. false: all of it is held now.
func (f *Filter) piece(e *schema.Event) bool {
	block := blockOf(e.Payload)
	before := f.held[block]
	if before == nil && !f.suspect(e.Payload) {
		return true
	}
	from, to := textOf(e.Payload)
	if from < 0 {
		e.Payload = f.payload(e.Payload, false)
		return true
	}
	text := e.Payload[from:to]
	if before != nil {
		text = append(before.text, text...)
		delete(f.held, block)
	}
	clean := f.hide(text, f.secrets)
	keep := partial(clean, f.secrets)
	if before == nil && keep == len(clean) && same(clean, text) {
		return true
	}
	if keep < len(clean) {
		if f.held == nil {
			f.held = make(map[string]*held)
		}
		f.held[block] = &held{text: bytes.Clone(clean[keep:]), event: *e}
	}
	if keep == 0 {
		return false
	}
	e.Payload = withText(e.Payload, from, to, clean[:keep])
	return true
}

// textOf returns where the text of a piece is, as provider.Block writes it; -1: it is written otherwise.
func textOf(payload []byte) (from, to int) {
	const before, behind = `"text":"`, `","index":`
	from, to = bytes.Index(payload, []byte(before)), bytes.LastIndex(payload, []byte(behind))
	if from < 0 || to < from+len(before) {
		return -1, -1
	}
	return from + len(before), to
}

func withText(payload []byte, from, to int, text []byte) []byte {
	b := make([]byte, 0, from+len(text)+len(payload)-to)
	return append(append(append(b, payload[:from]...), text...), payload[to:]...)
}

// suspect reports whether a piece may hold a secret, or the beginning of one. It is asked for every piece.
func (f *Filter) suspect(payload []byte) bool {
	end := bytes.LastIndex(payload, []byte(`","index":`))
	if end < 1 || f.ends[payload[end-1]] && partial(payload[:end], f.secrets) < end || f.hasEscapes(payload) {
		return true
	}
	for _, s := range f.secrets {
		if bytes.Contains(payload, s) {
			return true
		}
	}
	return false
}

// blockOf names the block of a piece.
func blockOf(payload []byte) string {
	_, index, _ := bytes.Cut(payload, []byte(`,"index":`))
	if i := bytes.IndexAny(index, ",}"); i >= 0 {
		index = index[:i]
	}
	return string(index)
}

// release returns what is held of blocks that end with an event.
func (f *Filter) release(e *schema.Event) (list []schema.Event) {
	if len(f.held) == 0 {
		return nil
	}
	switch e.Type {
	case schema.TypeBlockEnd:
		block := blockOf(append([]byte(","), e.Payload[1:]...))
		if h := f.held[block]; h != nil {
			delete(f.held, block)
			list = append(list, h.piece())
		}
	case schema.TypeMessageEnd, schema.TypeMessageStart:
		for block, h := range f.held {
			delete(f.held, block)
			list = append(list, h.piece())
		}
	}
	return list
}

// piece makes an event of what is held.
func (h *held) piece() schema.Event {
	e := h.event
	from, to := textOf(e.Payload)
	e.Payload = withText(e.Payload, from, to, h.text)
	return e
}

// payload cleans a payload as a whole. cut: its strings may end within a secret.
func (f *Filter) payload(p []byte, cut bool) []byte {
	secrets := f.secrets
	if cut || isFailure(p) {
		secrets = f.spelled()
	}
	clean := f.hide(p, secrets)
	if cut {
		clean = f.cutShort(clean)
	}
	if !same(clean, p) && provider.Problem(clean) != "" { // a secret that is no text of its own
		return []byte(`{"omitted":["credential"]}`)
	}
	return clean
}

// isFailure reports whether a payload may have words of an error.
func isFailure(payload []byte) bool {
	return bytes.Contains(payload, []byte(`"error"`)) || bytes.Contains(payload, []byte(`"reason":"`))
}

// cutShort hides the beginnings of secrets at the ends of strings.
func (f *Filter) cutShort(p []byte) []byte {
	for _, s := range f.spelled() {
		for n := len(s) - 1; n >= minSecret; n-- {
			p = bytes.ReplaceAll(p, append(bytes.Clone(s[:n]), '"'), []byte(hidden+`"`))
		}
	}
	return p
}

// Bytes returns b with every secret hidden, b itself where there is none. Escapes are undone to look for secrets and
// left as they are elsewhere.
func (f *Filter) Bytes(b []byte) []byte {
	return f.hide(b, f.spelled())
}

// hide is Bytes for some of the spellings.
func (f *Filter) hide(b []byte, secrets [][]byte) []byte {
	if len(secrets) == 0 {
		return b
	}
	spans := find(nil, unescapedText{b: b}, secrets)
	if f.hasEscapes(b) {
		v := unescapedText{b: b}
		for range maxUnescapes {
			next, more := v.unescape()
			if !more {
				break
			}
			v = next
			spans = find(spans, v, secrets)
		}
	}
	if len(spans) == 0 {
		return b
	}
	return cutOut(b, spans)
}

// hasEscapes reports whether a text has escapes that a secret may be written with.
func (f *Filter) hasEscapes(b []byte) bool {
	for i := bytes.IndexByte(b, '\\'); i >= 0 && i+1 < len(b); {
		switch b[i+1] {
		case 'u', '/', '\\', 'x':
			return true
		}
		j := bytes.IndexByte(b[i+2:], '\\')
		if j < 0 {
			break
		}
		i += 2 + j
	}
	return bytes.IndexByte(b, '%') >= 0 || bytes.Contains(b, []byte("&#"))
}

// find adds where a view has secrets.
func find(spans [][2]int, v unescapedText, secrets [][]byte) [][2]int {
	for _, s := range secrets {
		for from := 0; ; {
			i := bytes.Index(v.b[from:], s)
			if i < 0 {
				break
			}
			if withinEscape(v.b[:from+i]) {
				from += i + 1
				continue
			}
			spans = append(spans, [2]int{v.origin(from + i), v.origin(from + i + len(s))})
			from += i + len(s)
		}
	}
	return spans
}

// withinEscape reports whether a text ends with a backslash that the next byte belongs to.
func withinEscape(b []byte) bool { return (len(b)-len(bytes.TrimRight(b, `\`)))%2 == 1 }

// partial returns where the longest end of a text begins that is the beginning of a secret, or of an escape; the length
// of the text where there is none.
func partial(b []byte, secrets [][]byte) int {
	v, cut := unescapedText{b: b}, len(b)
	for range maxUnescapes {
		if n := suffix(v.b, secrets); n > 0 {
			cut = min(cut, v.origin(len(v.b)-n))
		}
		next, more := v.unescape()
		if !more {
			break
		}
		v = next
	}
	return cut
}

// Whole returns a text that was cut off without what at its end may be the beginning of a secret.
func (f *Filter) Whole(b []byte) []byte { return b[:partial(b, f.spelled())] }

// suffix returns how long the end of a text is that a secret, an escape, or both begin with.
func suffix(b []byte, secrets [][]byte) int {
	n := prefix(b, secrets)
	if open := openEscape(b); open > 0 {
		n = max(n, open+prefix(b[:len(b)-open], secrets))
	}
	return n
}

// prefix returns how long the end of a text is that a secret begins with.
func prefix(b []byte, secrets [][]byte) (n int) {
	for _, s := range secrets {
		for k := min(len(b), len(s)-1); k > n; k-- {
			if b[len(b)-1] == s[k-1] && bytes.Equal(b[len(b)-k:], s[:k]) {
				n = k
			}
		}
	}
	return n
}
