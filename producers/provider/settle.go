package provider

import (
	"bytes"
	"encoding/json"
)

// Settle takes the whole text of the block, a JSON string, as providers repeat it at its end. What the
// pieces before left out is said now. false: the pieces said something else, or so much that it cannot
// be told any more; whoever asks keeps the whole then, for the block says what its pieces said.
func (b *Block) Settle(whole json.RawMessage) bool {
	in := Inner(whole)
	switch {
	case b.Said() == 0:
		b.Text(whole)
	case len(b.text) < b.Said():
		return len(in) == b.Said() // the text is not kept any more
	case bytes.HasPrefix(in, b.text):
		b.Text(Enquote(in[len(b.text):]))
	default:
		return bytes.Equal(Unescape(in), Unescape(b.text))
	}
	return true
}
