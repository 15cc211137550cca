package gemini

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// step of a path: a member or an item.
type step struct {
	name  string
	index int
	list  bool
}

func (s step) container() byte {
	if s.list {
		return '['
	}
	return '{'
}

// Bounds of a path.
const (
	maxSteps = 64
	maxPath  = 8 << 10 // bytes
	maxIndex = 1 << 20
)

// parsePath reads a singular path of RFC 9535 that begins with a member: $.a.b[0]['c d'].
func parsePath(s string) (path []step, ok bool) {
	if len(s) > maxPath || !utf8.ValidString(s) || !strings.HasPrefix(s, "$") {
		return nil, false
	}
	for s = s[1:]; s != ""; {
		var st step
		switch {
		case s[0] == '.':
			n := strings.IndexAny(s[1:], ".[") + 1
			if n == 0 {
				n = len(s)
			}
			st.name, s = s[1:n], s[n:]
			ok = st.name != ""
		case len(s) > 1 && s[0] == '[' && (s[1] == '\'' || s[1] == '"'):
			st.name, s, ok = quotedName(s[1:])
		case s[0] == '[':
			n := strings.IndexByte(s, ']')
			if n < 2 || n > 8 {
				return nil, false
			}
			index, err := strconv.Atoi(s[1:n])
			st.list, st.index, s = true, index, s[n+1:]
			ok = err == nil && index >= 0 && index <= maxIndex
		default:
			ok = false
		}
		if path = append(path, st); !ok || len(path) > maxSteps {
			return nil, false
		}
	}
	return path, len(path) > 0 && !path[0].list
}

// quotedName reads a name in quotes and the bracket behind it.
func quotedName(s string) (name, rest string, ok bool) {
	quote := s[0]
	var inner strings.Builder // as the inside of a JSON string
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			if !strings.HasPrefix(s[i+1:], "]") || json.Unmarshal([]byte(`"`+inner.String()+`"`), &name) != nil {
				return "", "", false
			}
			return name, s[i+2:], true
		case c == '\\' && i+1 < len(s):
			if i++; s[i] != '\'' {
				inner.WriteByte('\\')
			}
			inner.WriteByte(s[i])
		case c == '"':
			inner.WriteString(`\"`)
		default:
			inner.WriteByte(c)
		}
	}
	return "", "", false
}
