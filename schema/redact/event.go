package redact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Field is the name of the envelope's field that says what was hidden in an event: a list of objects with "rule" and
// "count". A count of 0 is the rest of what began in an event before.
const Field = "redacted"

// Hit is how often a rule has found something.
type Hit struct {
	Rule  string `json:"rule"`
	Count int    `json:"count"`
}

// tally counts what the rules of one tenant find in an event, by their numbers.
type tally struct{ counts []int } // nil: nothing; -1: not of this rule

func (t *tally) add(r *Rules, rule, n int) {
	if t.counts == nil {
		t.counts = make([]int, len(r.list))
		for i := range t.counts {
			t.counts[i] = -1
		}
	}
	t.counts[rule] = max(t.counts[rule], 0) + n
}

// hasAny reports whether something was counted, be it the rest of what began in an event before.
func (t *tally) hasAny() bool { return t.counts != nil }

// hits returns what was counted, in the order of the rules.
func (t *tally) hits(r *Rules) (list []Hit) {
	for i, n := range t.counts {
		if n >= 0 {
			list = append(list, Hit{r.list[i].name, n})
		}
	}
	return list
}

// Event hides what the rules find in the payload of an event and in unknown fields of its envelope. Its cause, turn and
// actor stay, for these are ids. It returns what was found, nil where the event is as it was. The bytes of the event are
// not changed, it gets others.
func (r *Rules) Event(e *schema.Event) []Hit {
	if r == nil {
		return nil
	}
	var t tally
	r.clean(e, &t)
	if !t.hasAny() {
		return nil
	}
	list := t.hits(r)
	mark(e, list)
	return list
}

// clean hides what is found in one event alone.
func (r *Rules) clean(e *schema.Event, t *tally) {
	if r.paths && len(e.Payload) > 0 {
		e.Payload = r.cleanPaths(e.Type, e.Payload, t)
	}
	if !r.plain(e.Payload) {
		w := walk{r: r, t: t, typ: e.Type, own: isCustom(e.Type)}
		e.Payload = w.clean(e.Payload)
	}
	if len(e.Extra) > 0 && !r.plain(e.Extra) {
		w := walk{r: r, t: t, typ: e.Type, depth: 1, own: true}
		whole := w.clean(e.ExtraObject())
		e.Extra = whole[1 : len(whole)-1]
	}
}

// Line hides what the rules find in a line of the log. It returns the line itself where nothing was found.
func (r *Rules) Line(line []byte) ([]byte, []Hit, error) {
	e, err := schema.DecodeLine(line)
	if err != nil {
		return line, nil, err
	}
	list := r.Event(&e)
	if len(list) == 0 {
		return line, nil, nil
	}
	return e.AppendLine(nil), list, nil
}

// Value hides what the rules find in a JSON value that stands apart from its event, as the output of a tool that
// is kept as a blob. typ is the event's type. It returns v itself where nothing was found.
func (r *Rules) Value(typ string, v []byte) ([]byte, []Hit) {
	if r == nil || r.plain(v) {
		return v, nil
	}
	var t tally
	w := walk{r: r, t: &t, typ: typ, base: cap(v)}
	w.value(v, 1, true)
	return apply(v, w.edits), t.hits(r)
}

// edit is bytes that take the place of others.
type edit struct {
	from, to int
	text     []byte
}

// apply returns b with edits, which are in order.
func apply(b []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return b
	}
	out := make([]byte, 0, len(b)+32*len(edits))
	done := 0
	for _, e := range edits {
		out = append(append(out, b[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, b[done:]...)
}

// cleanPaths hides the values that paths name: of what is found every text, and every number, so that types stay.
func (r *Rules) cleanPaths(typ string, payload []byte, t *tally) []byte {
	for n := range r.list {
		c := &r.list[n]
		if c.path == nil || !c.isFor(typ) {
			continue
		}
		var edits []edit
		find(payload, c.path, isCustom(typ), 0, func(v []byte, own bool) {
			before := len(edits)
			edits = veil(edits, v, cap(payload)-cap(v), own, c.mark) // v is a part of payload
			if len(edits) > before {
				t.add(r, n, 1)
			}
		})
		payload = apply(payload, edits)
	}
	return payload
}

// isCustom reports whether events of a type have no framing but that of their first level.
func isCustom(typ string) bool { return strings.HasPrefix(typ, "custom.") }

// veil adds edits that hide every text of a value, which stands at an index; of what is the producer's own every
// number too.
func veil(edits []edit, v []byte, at int, own bool, mark string) []edit {
	switch {
	case len(v) == 0:
	case v[0] == '"':
		if string(jsonscan.Inner(v)) != mark {
			edits = append(edits, edit{at, at + len(v), jsonscan.AppendString(nil, mark)})
		}
	case v[0] == '{':
		for name, value := range jsonscan.Members(v) {
			if !isKept(string(name), value, own, 1) {
				edits = veil(edits, value, at+cap(v)-cap(value), own || isOwn(string(name)), mark)
			}
		}
	case v[0] == '[':
		for value := range jsonscan.Elements(v) {
			edits = veil(edits, value, at+cap(v)-cap(value), own, mark)
		}
	case own && (v[0] == '-' || classOf[v[0]] == digit) && string(v) != "0":
		edits = append(edits, edit{at, at + len(v), []byte{'0'}})
	}
	return edits
}

// walk passes over a JSON value and notes what is to be changed.
type walk struct {
	r     *Rules
	t     *tally
	typ   string
	skip  string // member of the payload that is looked at elsewhere
	depth int    // of the value
	own   bool   // it is the producer's own

	base  int // cap of the value
	edits []edit
	short bool // nothing stands in the place of what is hidden
}

// clean returns the value without what is found. Where that would be too large for an event, what is hidden leaves
// nothing.
func (w *walk) clean(v []byte) []byte {
	w.base = cap(v)
	w.value(v, w.depth, w.own)
	out := apply(v, w.edits)
	if len(out) <= schema.MaxEventBytes || len(out) <= len(v) {
		return out
	}
	w.t, w.edits, w.short = &tally{}, nil, true // all is counted already
	w.value(v, w.depth, w.own)
	return apply(v, w.edits)
}

// value looks at a value. depth 0 is the payload. own: it is the producer's own, without names that the framing needs.
func (w *walk) value(v []byte, depth int, own bool) {
	if len(v) == 0 {
		return
	}
	switch v[0] {
	case '"':
		w.text(v)
	case '{':
		w.object(v, depth, own)
	case '[':
		for value := range jsonscan.Elements(v) {
			w.value(value, depth+1, own)
		}
	default:
		w.number(v)
	}
}

func (w *walk) object(v []byte, depth int, own bool) {
	for i := jsonscan.SkipSpace(v, 1); i < len(v) && v[i] == '"'; {
		raw, value, end := jsonscan.RawMember(v, i)
		if end < 0 {
			return
		}
		name := string(jsonscan.Inner(raw))
		i = jsonscan.Behind(v, end)
		if own && len(raw) >= leastDigits {
			w.text(raw)
		}
		if isKept(name, value, own, depth) || depth == 0 && name == w.skip {
			continue
		}
		w.value(value, depth+1, own || isOwn(name))
	}
}

// text looks at a string.
func (w *walk) text(v []byte) {
	text := jsonscan.DecodeString(v)
	list := w.r.whole(w.typ, text)
	if len(list) == 0 {
		return
	}
	for _, p := range list {
		w.t.add(w.r, p.rule, 1)
	}
	at := w.base - cap(v)
	w.edits = append(w.edits, edit{at, at + len(v), jsonscan.AppendDecoded(nil, w.r.replace(text, list, w.short))})
}

// replace returns a text with marks in the place of parts; short: with nothing.
func (r *Rules) replace(text string, list []stretch, short bool) string {
	var b strings.Builder
	done := 0
	for _, p := range list {
		b.WriteString(text[done:p.from])
		if !short {
			b.WriteString(r.list[p.rule].mark)
		}
		done = p.to
	}
	b.WriteString(text[done:])
	return b.String()
}

// number looks at what is no text: the number of a card may be a number.
func (w *walk) number(v []byte) {
	rule := w.r.kinds[cards]
	if rule < 0 || len(v) > mostDigits || !w.r.list[rule].isFor(w.typ) {
		return
	}
	for _, c := range v {
		if classOf[c] != digit {
			return
		}
	}
	if isCard(v) {
		w.t.add(w.r, rule, 1)
		at := w.base - cap(v)
		w.edits = append(w.edits, edit{at, at + len(v), []byte{'0'}})
	}
}

// own are fields that hold what an agent, a tool or a person said, whatever names are within.
var own = map[string]bool{"input": true, "output": true, "error_detail": true, "values": true, "answer": true,
	"metadata": true, "data": true, "arguments": true, "resources": true, "schema": true, "options": true,
	"citations": true}

func isOwn(name string) bool { return own[name] }

// words are fields of the framing with one of a few values.
var words = map[string]bool{"id": true, "type": true, "state": true, "role": true, "kind": true, "step_kind": true,
	"intent": true, "stop_reason": true, "media_type": true, "gate": true, "status": true, "decision": true}

// isFraming reports whether a field names something by which readers find their way.
func isFraming(name string) bool {
	return words[name] || strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_ids") || name == "blob_ref"
}

// isKept reports whether a field stays as it is: it is needed by readers, and its value is what they need.
func isKept(name string, value []byte, own bool, depth int) bool {
	return (!own || depth == 0) && isFraming(name) && isToken(value)
}

// maxToken is the longest text that is an id, in bytes.
const maxToken = 128

// isToken reports whether a value can be an id, or a list of them.
func isToken(v []byte) bool {
	if len(v) > 0 && v[0] == '[' {
		for id := range jsonscan.Elements(v) {
			if !isToken(id) {
				return false
			}
		}
		return true
	}
	if !jsonscan.IsString(v) || len(v) > maxToken+2 {
		return false
	}
	for _, c := range jsonscan.Inner(v) {
		if classOf[c] == 0 && strings.IndexByte(":/|+=@#~", c) < 0 {
			return false
		}
	}
	return true
}

// mark notes in an event's envelope what was hidden in it, beside what was hidden before.
func mark(e *schema.Event, list []Hit) {
	before := e.ExtraObject()
	for name, v := range jsonscan.Members(before) {
		if string(name) == Field {
			list = addHits(v, list)
		}
	}
	after := addField(jsonscan.Object{'{'}.Members(before, Field), list)
	e.Extra = json.RawMessage(after[1:])
}

// addField writes the field that says what was hidden. Of an object that is nil it is the only one, without braces.
func addField(o jsonscan.Object, list []Hit) jsonscan.Object {
	o = append(o.Name(Field), '[')
	for i, h := range list {
		if i > 0 {
			o = append(o, ',')
		}
		o = append(o, '{').Str("rule", h.Rule).Int("count", int64(h.Count)).End()
	}
	return append(o, ']')
}

// addHits adds what the field of an event has said so far. What is none of ours is dropped.
func addHits(before []byte, list []Hit) []Hit {
	var old []Hit
	if json.Unmarshal(before, &old) != nil || len(old) > MaxRules {
		return list
	}
	sum := make([]Hit, 0, len(old)+len(list))
	for _, h := range append(old, list...) {
		if !validName(h.Rule) || h.Count < 0 {
			continue
		}
		if i := slices.IndexFunc(sum, func(o Hit) bool { return o.Rule == h.Rule }); i >= 0 {
			sum[i].Count += h.Count
		} else {
			sum = append(sum, h)
		}
	}
	return sum
}

// ReadHits returns what the field of a line says was hidden in its event; nil where it has none.
func ReadHits(line []byte) (list []Hit) {
	if !bytes.Contains(line, []byte(`"`+Field+`":`)) {
		return nil
	}
	e, err := schema.DecodeLine(line)
	if err != nil {
		return nil
	}
	if v := schema.Field(e.ExtraObject(), Field); v != nil {
		list = addHits(v, nil)
	}
	return list
}
