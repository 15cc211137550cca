package qoder

import (
	"bytes"
	"slices"
)

// maxTold bounds the messages of people that a lane remembers, so as not to show them twice.
const maxTold = 64

// told is a message that was shown when it was sent, and that the agent may repeat as one of its own framing.
type told struct{ event, message, content tally }

// said is told that a user.message or system.message is shown for the record at hand, which is not message
// framing: when the agent's own message repeats it, that one is not shown. content and messageID are those of the
// record's payload, as they stand there; messageID may be nil.
func (m *messages) said(r *record, content, messageID []byte) {
	id, _, _ := r.Envelope()
	l := m.lane(string(r.Child))
	l.told = append(l.told, told{event: tallyOf(id), message: tallyOf(inner(messageID)), content: contentTally(content)})
	if len(l.told) > maxTold {
		l.told = l.told[1:]
	}
}

// repeats reports whether a message is one which was shown when it was sent: its cause is that event, it has that
// message's id, or it is the oldest that says the same. Each is repeated once.
func (l *lane) repeats(cause string, messageID, content []byte) bool {
	of := told{event: tallyOf([]byte(cause)), message: tallyOf(inner(messageID)), content: contentTally(content)}
	same := []func(t told) bool{
		func(t told) bool { return cause != "" && t.event == of.event },
		func(t told) bool { return of.message.units > 0 && t.message == of.message },
		func(t told) bool { return of.content.units > 0 && t.content == of.content },
	}
	for _, fn := range same {
		if i := slices.IndexFunc(l.told, fn); i >= 0 {
			l.told = slices.Delete(slices.Clone(l.told), i, i+1)
			return true
		}
	}
	return false
}

func tallyOf(b []byte) (t tally) {
	t.add(b)
	return t
}

// contentTally stands for what a content says: a string, or a list of blocks. A string says the same as a block of
// text.
func contentTally(content []byte) (t tally) {
	if isString(content) {
		t.add(inner(content))
		return t
	}
	for list := readList(content); ; {
		block, ok := list.next()
		if !ok {
			return t
		}
		if text := blockText(block); text != nil {
			t.add(text)
			continue
		}
		for _, c := range bytes.TrimSpace(block) {
			t.unit(uint16(c))
		}
	}
}

// blockText returns the text of a block of the type text, as it is written; nil for others.
func blockText(block []byte) (text []byte) {
	isText := false
	for r := readObject(block); ; {
		name, v, ok := r.next()
		switch {
		case !ok && isText:
			return text
		case !ok:
			return nil
		case string(name) == "type":
			isText = string(v) == `"text"`
		case string(name) == "text" && isString(v):
			text = inner(v)
		}
	}
}
