package langgraph

import "agentstream/schema/jsonscan"

// object is a JSON object that is being written.
type object = jsonscan.Object

// text decodes a JSON string; "" for anything else.
func text(raw []byte) string {
	s, _ := jsonscan.Unquote(raw)
	return s
}

// quote returns a JSON string.
func quote(s string) []byte { return jsonscan.AppendString(nil, s) }

func isObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }
