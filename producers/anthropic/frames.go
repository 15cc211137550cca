package anthropic

import "bytes"

// frame is one event of the provider's stream, or something that should have been one.
type frame struct {
	event   string // name of the server-sent event; "" in JSONL
	data    []byte // valid until the callback returns
	problem string // why data is not a frame; "" when nothing is known against it
}

// framer cuts a body into frames. The zero value with max set is ready.
type framer struct {
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
}

type form int

const (
	formUnknown form = iota
	formSSE
	formJSONL
)

const maxHead = 4 << 10

// write takes the next bytes of the body.
func (f *framer) write(chunk []byte) {
	if f.form == formUnknown {
		if chunk = f.recognise(chunk); len(chunk) == 0 {
			return
		}
	}
	for len(chunk) > 0 {
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

// recognise finds out the form from the first byte that is no white space, and gives the bytes from
// there on; nil while it is not known.
func (f *framer) recognise(chunk []byte) []byte {
	f.head = append(f.head, chunk...)
	const bom = "\xef\xbb\xbf"
	b := f.head
	if len(b) < len(bom) && string(b) == bom[:len(b)] {
		return nil
	}
	b = bytes.TrimLeft(bytes.TrimPrefix(b, []byte(bom)), " \t\r\n")
	if len(b) == 0 {
		f.head = append(f.head[:0], bom...) // white space says nothing; a second mark is not one
		return nil
	}
	f.form = formSSE
	if b[0] == '{' {
		f.form = formJSONL
	}
	f.head = nil
	return b
}

// lineEnd gives the index of the next line terminator. Server-sent events know three.
func (f *framer) lineEnd(chunk []byte) int {
	if f.form == formJSONL {
		return bytes.IndexByte(chunk, '\n')
	}
	return bytes.IndexAny(chunk, "\r\n")
}

func (f *framer) appendLine(part []byte) {
	if room := f.max - len(f.line); len(part) > room {
		part, f.lineLong = part[:room], true
	}
	f.line = append(f.line, part...)
}

func (f *framer) endLine(line []byte) {
	long := f.lineLong
	f.lineLong = false
	if f.form == formJSONL {
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

func (f *framer) endJSONLine(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) > 0 {
		f.send(frame{data: line})
	}
}

// dispatch ends a server-sent event. One without data is none (WHATWG HTML §9.2.6).
func (f *framer) dispatch(problem string) {
	if f.hasData {
		f.send(frame{event: f.event, data: f.data, problem: problem})
	}
	f.event, f.data, f.hasData, f.tooLong = "", f.data[:0], false, false
}

func (f *framer) send(fr frame) {
	if f.tooLong {
		fr.problem = "longer than a frame may be"
	}
	f.any = true
	f.head = nil
	f.emit(fr)
}

// unread keeps the beginning of a body that has no frames: an error page, perhaps.
func (f *framer) unread(line []byte) {
	if room := maxHead - len(f.head); !f.any && room > 1 {
		f.head = append(append(f.head, line[:min(len(line), room-1)]...), '\n')
	}
}

// close ends the body. A last frame without its blank line counts, as some servers leave it out.
func (f *framer) close() {
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
