package qoder

import (
	"bytes"
	"slices"

	"agentstream/schema/jsonscan"
)

// maxTold bounds the messages of people that a lane remembers, so as not to show them twice.
const maxTold = 64

// told is a message that was shown when it was sent, and that the agent may repeat as one of its own framing.
type told struct{ event, message, content jsonscan.Sum }

// noteShown is called when a user.message or system.message is shown for the record at hand, which is not
// message framing: when the agent's own message repeats it, that one is not shown. content and messageID are
// those of the record's payload, as they are there; messageID may be nil.
func (m *messages) noteShown(r *record, content, messageID []byte) {
	id, _, _ := r.Envelope()
	l := m.lane(string(r.Child))
	l.told = append(l.told, told{event: jsonscan.SumOf(id), message: jsonscan.SumOf(inner(messageID)),
		content: contentSum(content)})
	if len(l.told) > maxTold {
		l.told = l.told[1:]
	}
}

// isRepeat reports whether a message is one which was shown when it was sent: its cause is that event, it has
// that message's id, or it is the oldest that says the same. Each is repeated once.
func (l *lane) isRepeat(cause string, messageID, content []byte) bool {
	of := told{event: jsonscan.SumOf([]byte(cause)), message: jsonscan.SumOf(inner(messageID)),
		content: contentSum(content)}
	same := []func(t told) bool{
		func(t told) bool { return cause != "" && t.event == of.event },
		func(t told) bool { return of.message.Units > 0 && t.message == of.message },
		func(t told) bool { return of.content.Units > 0 && t.content == of.content },
	}
	for _, fn := range same {
		if i := slices.IndexFunc(l.told, fn); i >= 0 {
			l.told = slices.Delete(slices.Clone(l.told), i, i+1)
			return true
		}
	}
	return false
}

// contentSum stands for what a content says: a string, or a list of blocks. A string says the same as a block of
// text.
func contentSum(content []byte) (s jsonscan.Sum) {
	if isString(content) {
		return jsonscan.SumOf(inner(content))
	}
	for block := range jsonscan.Elements(content) {
		if text := blockText(block); text != nil {
			s.Add(text)
			continue
		}
		for _, c := range bytes.TrimSpace(block) {
			s.AddUnit(uint16(c))
		}
	}
	return s
}

// blockText returns the text of a block of the type text, as it is written; nil for others.
func blockText(block []byte) (text []byte) {
	isText := false
	for name, v := range jsonscan.Members(block) {
		switch {
		case string(name) == "type":
			isText = string(v) == `"text"`
		case string(name) == "text" && isString(v):
			text = inner(v)
		}
	}
	if !isText {
		return nil
	}
	return text
}
