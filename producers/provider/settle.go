package provider

import (
	"bytes"
	"encoding/json"
)

// Settle takes the whole text of the block, a JSON string, as providers repeat it at its end. What the
// pieces before left out is said now. false: the pieces said something else, or so much that it cannot
// be emitted any more; whoever asks keeps the whole then. What the pieces said stays said, and the newest whole is the
// text of the block in the message's content, and the input of a call. An empty whole says nothing.
func (b *Block) Settle(whole json.RawMessage) bool {
	in := Inner(whole)
	was := b.final
	b.final = nil
	switch {
	case b.Said() == 0:
		b.Text(whole)
	case len(b.text) < b.Said():
		return len(in) == b.Said() // the text is not kept any more
	case bytes.HasPrefix(in, b.text):
		b.Text(Enquote(in[len(b.text):]))
	case len(in) == 0:
		b.final = was
		return false
	case !bytes.Equal(Unescape(in), Unescape(b.text)):
		b.final = bytes.Clone(in)
		b.m.grow(len(in))
		return bytes.Equal(was, in)
	}
	return true
}

// whole is the inside of the block's text: what its pieces said, unless the provider said something else in the end.
func (b *Block) whole() []byte {
	if b.final != nil {
		return b.final
	}
	return b.text
}
