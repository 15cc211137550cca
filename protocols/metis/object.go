package metis

import "agentstream/schema/jsonscan"

// object is a JSON object that is being written.
type object = jsonscan.Object

// text decodes a JSON string; "" for anything else.
func text(raw []byte) string {
	s, _ := jsonscan.Unquote(raw)
	return s
}
