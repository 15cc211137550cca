package qoder

// part is a block of a message's content.
type part struct {
	raw                 []byte
	typ                 []byte // as it stands
	text                []byte // insides of strings
	thinking            []byte
	refusal, partial    []byte
	id, name, signature []byte // strings; nil when they are none
	input               []byte
}

func readPart(raw []byte) (c part) {
	c.raw = raw
	for r := readObject(raw); ; {
		name, v, ok := r.next()
		if !ok {
			return c
		}
		switch string(name) {
		case "type":
			c.typ = v
		case "text":
			c.text = inner(v)
		case "thinking":
			c.thinking = inner(v)
		case "refusal":
			c.refusal = inner(v)
		case "partial_json":
			c.partial = inner(v)
		case "id":
			c.id = v
		case "name":
			c.name = v
		case "input":
			c.input = v
		case "signature":
			if len(inner(v)) > 0 {
				c.signature = v
			}
		}
	}
}

func (c *part) isText() bool { return string(c.typ) == `"text"` }

// isThought reports whether the block is a thought, in one of the ways in which producers write it.
func (c *part) isThought() bool {
	switch string(c.typ) {
	case `"thinking"`, `"reasoning"`, `"reasoning_text"`:
		return true
	}
	return false
}

func (c *part) thought() []byte {
	if c.thinking != nil {
		return c.thinking
	}
	return c.text
}

// appendFull appends the block as it is; a thought under the one name that it has here.
func (c *part) appendFull(o []byte) []byte {
	if !c.isThought() || string(c.typ) == `"thinking"` && c.thinking != nil {
		return append(o, c.raw...)
	}
	o = append(append(append(o, `{"type":"thinking","thinking":"`...), c.thought()...), '"')
	for r := readObject(c.raw); ; {
		name, v, ok := r.next()
		if !ok {
			return append(o, '}')
		}
		switch string(name) {
		case "type", "thinking", "text":
		default:
			o = append(append(appendString(append(o, ','), string(name)), ':'), v...)
		}
	}
}

// appendPlain appends what there is to read in the block as a block of text; nil: there is nothing.
func (c *part) appendPlain(o []byte) []byte {
	switch {
	case c.isText():
		return append(o, c.raw...)
	case c.refusal != nil:
		return append(append(append(o, `{"type":"text","text":"`...), c.refusal...), `"}`...)
	}
	return nil
}
