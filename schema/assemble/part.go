package assemble

import "agentstream/schema/jsonscan"

// Part is a block of a message's content, as a message.end has it. Fields that are absent are nil.
type Part struct {
	Raw                    []byte
	Type                   []byte // as it stands
	Text, Refusal, Partial []byte // insides of strings: text, refusal, partial_json
	ID, Name, Signature    []byte // strings; a signature that is empty is absent
	Input                  []byte

	thinking []byte
}

// ReadPart takes a block apart.
func ReadPart(raw []byte) Part {
	c := Part{Raw: raw}
	for name, v := range jsonscan.Members(raw) {
		switch string(name) {
		case "type":
			c.Type = v
		case "text":
			c.Text = jsonscan.Inner(v)
		case "thinking":
			c.thinking = jsonscan.Inner(v)
		case "refusal":
			c.Refusal = jsonscan.Inner(v)
		case "partial_json":
			c.Partial = jsonscan.Inner(v)
		case "id":
			c.ID = v
		case "name":
			c.Name = v
		case "input":
			c.Input = v
		case "signature":
			if len(jsonscan.Inner(v)) > 0 {
				c.Signature = v
			}
		}
	}
	return c
}

// IsText reports whether the block is one of text.
func (c *Part) IsText() bool { return string(c.Type) == `"text"` }

// IsThought reports whether the block is a thought, in one of the ways in which producers write it.
func (c *Part) IsThought() bool {
	switch string(c.Type) {
	case `"thinking"`, `"reasoning"`, `"reasoning_text"`:
		return true
	}
	return false
}

// Reasoning returns the text of a thought.
func (c *Part) Reasoning() []byte {
	if c.thinking != nil {
		return c.thinking
	}
	return c.Text
}

// IsNamedThinking reports whether a thought is under the name thinking, as in a BlockOpen.
func (c *Part) IsNamedThinking() bool { return string(c.Type) == `"thinking"` && c.thinking != nil }
