package provider

import (
	"bytes"
	"encoding/json"
)

// Settle takes the whole text of the block, a JSON string, as providers repeat it at its end. What the
// pieces before left out is emitted now. false: the pieces differ, or have so much that it cannot
// be emitted any more; the caller keeps the whole then. The pieces stay as emitted, and the newest whole is the
// text of the block in the message's content, and the input of a call. An empty whole emits nothing.
func (b *Block) Settle(whole json.RawMessage) bool {
	in := Inner(whole)
	was := b.final
	b.final = nil
	switch {
	case b.Len() == 0:
		b.Text(whole)
	case len(b.text) < b.Len():
		return len(in) == b.Len() // the text is not kept any more
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

// joined returns the inside of the block's text: its pieces joined, unless the provider has sent another text in the
// end.
func (b *Block) joined() []byte {
	if b.final != nil {
		return b.final
	}
	return b.text
}
