package metis

import "agentstream/schema/jsonscan"

// text decodes a JSON string; "" for anything else.
func text(raw []byte) string {
	s, _ := jsonscan.Unquote(raw)
	return s
}
