package provider

import (
	"bytes"
	"slices"

	"agentstream/schema/jsonscan"
)

// frame is one event of the provider's stream, or something that should have been one.
type frame struct {
	event   string // name of the server-sent event; "" in JSON
	data    []byte // valid until the callback returns
	problem string // why data is not a frame; "" when nothing is known against it
}

// ProblemLong is the problem of a frame that is longer than Config.MaxFrameBytes: nothing is known against it.
const ProblemLong = "longer than a frame may be"

// Framer cuts a body into frames. It finds out which form the body has: server-sent events, one JSON
// object per line, or objects that are printed over several lines or stand in a list.
type Framer struct {
	max  int // bytes of one frame
	emit func(frame)

	form     form
	head     []byte // bytes before the form was known, then unread text while no frame was seen
	line     []byte // begun line
	data     []byte // data of the begun event
	event    string
	next     string // name that came behind data: of the begun event, if that ends now, else of the next one
	hasData  bool
	raw      bool // the data of the begun event stands in lines without a field
	lineLong bool // the begun line is over max, and the rest of it is passed over
	tooLong  bool // the begun event is
	afterCR  bool // a line feed that comes now belongs to the carriage return before it
	any      bool // a frame was emitted
	nest     nesting
}

type form int

const (
	formUnknown form = iota
	formSSE
	formJSONL    // one value per line
	formDocument // values over several lines, or in a list
)

const maxHead = 4 << 10

// write takes the next bytes of the body.
func (f *Framer) write(chunk []byte) {
	if f.form == formUnknown {
		if chunk = f.recognise(chunk); len(chunk) == 0 {
			return
		}
	}
	for len(chunk) > 0 {
		if f.form == formDocument {
			f.document(chunk)
			return
		}
		if f.afterCR {
			f.afterCR = false
			if chunk[0] == '\n' {
				chunk = chunk[1:]
				continue
			}
		}
		end := lineEnd(chunk)
		if end < 0 {
			f.appendLine(chunk)
			return
		}
		f.afterCR = chunk[end] == '\r'
		if len(f.line) == 0 && !f.lineLong && end <= f.max {
			f.endLine(chunk[:end]) // the whole line is in this chunk: no copy
		} else {
			f.appendLine(chunk[:end])
			f.endBegun()
		}
		chunk = chunk[end+1:]
	}
}

// recognise finds out the form from the first byte that is no white space, and returns the bytes from
// there on; nil while it is not known.
func (f *Framer) recognise(chunk []byte) []byte {
	f.head = append(f.head, chunk...)
	const bom = "\xef\xbb\xbf"
	b := f.head
	if len(b) < len(bom) && string(b) == bom[:len(b)] {
		return nil
	}
	b = bytes.TrimLeft(bytes.TrimPrefix(b, []byte(bom)), " \t\r\n")
	if len(b) == 0 {
		f.head = append(f.head[:0], bom...) // white space means nothing; a second mark is not one
		return nil
	}
	f.form = formSSE
	switch b[0] {
	case '{':
		f.form = formJSONL
	case '[':
		f.form = formDocument
	}
	f.head = nil
	return b
}

// document takes a chunk of values that do not keep to lines. What is between two of them is passed over.
func (f *Framer) document(chunk []byte) {
	for i, c := range chunk {
		ended := f.nest.feed(c)
		if ended || f.nest.depth > 0 {
			f.appendLine(chunk[i : i+1])
		}
		if ended {
			f.endBegun()
		}
	}
}

// lineEnd returns the index of the next line terminator. Server-sent events know three.
func lineEnd(chunk []byte) int {
	const window = 4 << 10 // of bytes that are looked at again where lines end by CR alone
	for from := 0; from < len(chunk); from += window {
		part := chunk[from:min(from+window, len(chunk))]
		feed := bytes.IndexByte(part, '\n')
		if feed >= 0 {
			part = part[:feed]
		}
		if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
			return from + cr
		}
		if feed >= 0 {
			return from + feed
		}
	}
	return -1
}

func (f *Framer) appendLine(part []byte) {
	if room := f.max - len(f.line); len(part) > room {
		part, f.lineLong = part[:room], true
	}
	f.line = append(f.line, part...)
}

// endBegun ends the line, or the value, that was begun.
func (f *Framer) endBegun() {
	line := f.line
	f.line = f.line[:0]
	f.endLine(line)
}

func (f *Framer) endLine(line []byte) {
	long := f.lineLong
	f.lineLong = false
	if f.form == formJSONL && isField(line) {
		f.form = formSSE
	}
	if f.form == formSSE {
		f.field(line, long)
		return
	}
	text := bytes.TrimSpace(line)
	if f.form == formJSONL && !f.any && len(text) > 0 && bytes.IndexByte([]byte("{[,"), text[len(text)-1]) >= 0 {
		if list, rest := objects(text); list == nil && rest != nil { // as printed for people
			f.form = formDocument
			f.document(line)
			return
		}
	}
	f.tooLong = long
	if len(text) > 0 {
		f.send(frame{data: text})
	}
}

// field takes a line of server-sent events. Services leave out the blank line between two events, and print JSON,
// errors above all, without the field that it belongs into.
func (f *Framer) field(line []byte, long bool) {
	if len(line) == 0 {
		f.dispatch()
		return
	}
	if line[0] == ':' { // a comment
		return
	}
	whole := !f.hasData || isValueEnd(f.data)
	if f.raw && whole && (isField(line) || line[0] == '{') || line[0] == '{' && whole {
		f.dispatch()
	}
	if f.raw || line[0] == '{' && !f.hasData {
		f.append(line, long)
		f.raw = true
		return
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		for bytes.HasPrefix(value, []byte("data:")) { // packed twice
			value = bytes.TrimPrefix(value[len("data:"):], []byte{' '})
		}
		text := bytes.TrimLeft(value, " \t")
		if f.hasData && whole && len(text) > 0 && bytes.IndexByte([]byte(",}]"), text[0]) < 0 {
			f.send(frame{event: f.event, data: f.data})
			f.event, f.next, f.data, f.hasData, f.tooLong = f.next, "", f.data[:0], false, false
		}
		f.append(value, long)
	case "event":
		f.next = string(value[:min(len(value), maxName)])
		if !f.hasData {
			f.event, f.next = f.next, ""
		}
	case "id", "retry":
	case "error": // no specification has it
		f.dispatch()
		if !jsonscan.Valid(value, maxDepth) {
			value = Quote(string(value))
		}
		f.event = "error"
		f.append(Fields{{"error", value}}.Encode(), long)
		f.dispatch()
	default: // it may be the beginning of a body that has no frames: an error page, perhaps
		room := maxHead - len(f.head)
		if !f.any && room > 1 {
			f.head = append(append(f.head, line[:min(len(line), room-1)]...), '\n')
		}
	}
}

// isField reports whether a line is one of server-sent events.
func isField(line []byte) bool {
	return bytes.HasPrefix(line, []byte("data:")) || bytes.HasPrefix(line, []byte("event:"))
}

// append adds a line to the data of the begun event.
func (f *Framer) append(value []byte, long bool) {
	if f.hasData && len(f.data) < f.max {
		f.data = append(f.data, '\n')
	}
	f.hasData, f.tooLong = true, f.tooLong || long
	if room := f.max - len(f.data); len(value) > room {
		value, f.tooLong = value[:room], true
	}
	f.data = append(f.data, value...)
}

// isValueEnd reports whether nothing that begins can belong to what data ends with: two values in JSON have a
// comma between them.
func isValueEnd(data []byte) bool {
	data = bytes.TrimRight(data, " \t\r\n")
	return len(data) > 0 && (data[len(data)-1] == '}' || data[len(data)-1] == ']' || string(data) == "null")
}

// dispatch ends a server-sent event. One without data is none (WHATWG HTML §9.2.6).
func (f *Framer) dispatch() {
	if f.next != "" {
		f.event = f.next
	}
	if f.hasData {
		f.send(frame{event: f.event, data: f.data})
	}
	f.event, f.next, f.data, f.hasData, f.tooLong, f.raw = "", "", f.data[:0], false, false, false
}

func (f *Framer) send(fr frame) {
	if f.tooLong {
		fr.problem = ProblemLong
	}
	f.any = true
	f.head = nil
	f.emit(fr)
}

// close ends the body. A last frame without its blank line counts, as some servers leave it out.
func (f *Framer) close() {
	if len(f.line) > 0 {
		f.endBegun()
	}
	f.dispatch()
	if head := bytes.TrimSpace(f.head); !f.any && f.form == formSSE && len(head) > 0 {
		f.emit(frame{data: head, problem: "not a stream of messages"})
	}
}

// nesting is where a text of JSON stands.
type nesting struct {
	depth   int
	quoted  bool // within a string
	escaped bool // behind its backslash
}

// feed takes the next byte. It reports whether that ends an object that lies in no other, nor in a list that does. A
// list around all counts for nothing.
func (n *nesting) feed(c byte) (ended bool) {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted && c == '\\':
		n.escaped = true
	case c == '"':
		n.quoted = !n.quoted && n.depth > 0
	case n.quoted:
	case c == '{', c == '[' && n.depth > 0:
		n.depth++
	case (c == '}' || c == ']') && n.depth > 0:
		n.depth--
		return n.depth == 0
	}
	return false
}

// whole reports whether a text is an object that has its end.
func whole(text []byte) (ended bool) {
	var n nesting
	for _, c := range text {
		ended = n.feed(c) || ended
	}
	return ended
}

// objects cuts data into objects that stand one behind the other, and the beginning of another. Both are nil when it is
// anything else.
func objects(data []byte) (list [][]byte, rest []byte) {
	var n nesting
	from := 0
	for i, c := range data {
		if n.feed(c) {
			list = append(list, bytes.TrimSpace(data[from:i+1]))
			from = i + 1
		}
	}
	broken := slices.ContainsFunc(list, func(one []byte) bool { return Problem(one) != "" })
	if broken || n.depth == 0 && from < len(data) {
		return nil, nil
	}
	return list, append(rest, data[from:]...)
}
