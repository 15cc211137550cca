package transcript

import (
	"bytes"
	"encoding/json"

	"agentstream/schema/jsonscan"
)

// member is one member of an object that may be cut. whole is false for the one that it was cut in.
type member struct {
	name  string
	value []byte
	whole bool
}

// members walks an object that need not be whole, nor be JSON: values are found by their brackets
// and quotes alone. whole reports that the object ends as it should.
func members(b []byte) (list []member, whole bool) {
	i := jsonscan.SkipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return nil, false
	}
	for i = jsonscan.SkipSpace(b, i+1); i < len(b) && b[i] == '"'; {
		end, ok := valueEnd(b, i)
		var name string
		if !ok || json.Unmarshal(b[i:end], &name) != nil {
			return list, false
		}
		if i = jsonscan.SkipSpace(b, end); i >= len(b) || b[i] != ':' {
			return list, false
		}
		if i = jsonscan.SkipSpace(b, i+1); i >= len(b) {
			return append(list, member{name: name}), false
		}
		end, ok = valueEnd(b, i)
		list = append(list, member{name, b[i:end], ok})
		if i = jsonscan.SkipSpace(b, end); !ok || i >= len(b) || b[i] != ',' {
			break
		}
		i = jsonscan.SkipSpace(b, i+1)
	}
	return list, i < len(b) && b[i] == '}'
}

// items walks a list in the same way. An item that was cut is left out.
func items(b []byte) (list [][]byte, whole bool) {
	i := jsonscan.SkipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return nil, false
	}
	for i = jsonscan.SkipSpace(b, i+1); i < len(b) && b[i] != ']'; {
		end, ok := valueEnd(b, i)
		if !ok {
			return list, false
		}
		list = append(list, b[i:end])
		if i = jsonscan.SkipSpace(b, end); i >= len(b) || b[i] != ',' {
			break
		}
		i = jsonscan.SkipSpace(b, i+1)
	}
	return list, i < len(b) && b[i] == ']'
}

// valueEnd returns the index behind the value at i; ok is false when it was cut or is none.
func valueEnd(b []byte, i int) (end int, ok bool) {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		for level := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				end, ok := stringEnd(b, i)
				if !ok {
					return end, false
				}
				i = end - 1
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return i + 1, true
				}
			}
		}
		return len(b), false
	}
	n := bytes.IndexAny(b[i:], ",}] \t\r\n")
	if n < 0 {
		return len(b), false
	}
	return i + n, n > 0
}

func stringEnd(b []byte, i int) (end int, ok bool) {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return len(b), false
}
