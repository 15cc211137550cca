package provider

import "bytes"

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
	hasData  bool
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

// nesting is where a document stands: frames are the objects that lie in no other.
type nesting struct {
	depth   int
	quoted  bool // within a string
	escaped bool // behind its backslash
}

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
		end := f.lineEnd(chunk)
		if end < 0 {
			f.appendLine(chunk)
			return
		}
		f.afterCR = chunk[end] == '\r'
		if len(f.line) == 0 && !f.lineLong && end <= f.max {
			f.endLine(chunk[:end]) // the whole line is in this chunk: no copy
		} else {
			f.appendLine(chunk[:end])
			line := f.line
			f.line = f.line[:0]
			f.endLine(line)
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

// document takes a chunk of values that do not keep to lines.
func (f *Framer) document(chunk []byte) {
	for _, c := range chunk {
		n := &f.nest
		switch {
		case n.quoted:
			switch {
			case n.escaped:
				n.escaped = false
			case c == '\\':
				n.escaped = true
			case c == '"':
				n.quoted = false
			}
		case c == '"':
			n.quoted = n.depth > 0
		case c == '{':
			n.depth++
		case c == '[' && n.depth > 0:
			n.depth++
		}
		if n.depth == 0 {
			continue // between two frames
		}
		if len(f.line) < f.max {
			f.line = append(f.line, c)
		} else {
			f.lineLong = true
		}
		if !n.quoted && (c == '}' || c == ']') {
			if n.depth--; n.depth == 0 {
				f.endDocument()
			}
		}
	}
}

func (f *Framer) endDocument() {
	line := f.line
	f.line, f.tooLong, f.lineLong = f.line[:0], f.lineLong, false
	f.endJSONLine(line)
}

// lineEnd returns the index of the next line terminator. Server-sent events know three.
func (f *Framer) lineEnd(chunk []byte) int {
	if f.form == formJSONL {
		return bytes.IndexByte(chunk, '\n')
	}
	return bytes.IndexAny(chunk, "\r\n")
}

func (f *Framer) appendLine(part []byte) {
	if room := f.max - len(f.line); len(part) > room {
		part, f.lineLong = part[:room], true
	}
	f.line = append(f.line, part...)
}

func (f *Framer) endLine(line []byte) {
	long := f.lineLong
	f.lineLong = false
	if f.form == formJSONL {
		if !f.any && string(bytes.TrimSpace(line)) == "{" { // as printed for people
			f.form = formDocument
			f.document(line)
			return
		}
		f.tooLong = long
		f.endJSONLine(line)
		return
	}
	if f.form == formDocument { // cut short
		f.tooLong = long
		f.endJSONLine(line)
		return
	}
	if len(line) == 0 {
		f.dispatch("")
		return
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "":
		// a comment
	case "data":
		if f.hasData && len(f.data) < f.max {
			f.data = append(f.data, '\n')
		}
		f.hasData, f.tooLong = true, f.tooLong || long
		if room := f.max - len(f.data); len(value) > room {
			value, f.tooLong = value[:room], true
		}
		f.data = append(f.data, value...)
	case "event":
		f.event = string(value[:min(len(value), maxName)])
	case "id", "retry":
	default:
		f.unread(line)
	}
}

func (f *Framer) endJSONLine(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) > 0 {
		f.send(frame{data: line})
	}
}

// dispatch ends a server-sent event. One without data is none (WHATWG HTML §9.2.6).
func (f *Framer) dispatch(problem string) {
	if f.hasData {
		f.send(frame{event: f.event, data: f.data, problem: problem})
	}
	f.event, f.data, f.hasData, f.tooLong = "", f.data[:0], false, false
}

func (f *Framer) send(fr frame) {
	if f.tooLong {
		fr.problem = ProblemLong
	}
	f.any = true
	f.head = nil
	f.emit(fr)
}

// unread keeps the beginning of a body that has no frames: an error page, perhaps.
func (f *Framer) unread(line []byte) {
	if room := maxHead - len(f.head); !f.any && room > 1 {
		f.head = append(append(f.head, line[:min(len(line), room-1)]...), '\n')
	}
}

// close ends the body. A last frame without its blank line counts, as some servers leave it out.
func (f *Framer) close() {
	if line := f.line; len(line) > 0 {
		f.line = nil
		f.endLine(line)
	}
	f.dispatch("")
	if head := bytes.TrimSpace(f.head); !f.any && f.form == formSSE && len(head) > 0 {
		f.emit(frame{data: head, problem: "not a stream of messages"})
	}
	f.head = nil
}
