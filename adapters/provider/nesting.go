package provider

// nesting is where a text of JSON stands.
type nesting struct {
	depth   int
	quoted  bool // within a string
	escaped bool // behind its backslash
}

// take takes the next byte. It reports whether that ends an object that lies in no other, nor in a list that does. A
// list around all counts for nothing.
func (n *nesting) take(c byte) (ended bool) {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted && c == '\\':
		n.escaped = true
	case c == '"':
		n.quoted = !n.quoted && n.depth > 0
	case n.quoted:
	case c == '{', c == '[' && n.depth > 0:
		n.depth++
	case (c == '}' || c == ']') && n.depth > 0:
		n.depth--
		return n.depth == 0
	}
	return false
}

// whole reports whether a text is an object that has its end.
func whole(text []byte) (ended bool) {
	var n nesting
	for _, c := range text {
		ended = n.take(c) || ended
	}
	return ended
}

// objects cuts data that holds several objects one behind the other; nil when it is anything else.
func objects(data []byte) (list [][]byte) {
	var n nesting
	from := 0
	for i, c := range data {
		if n.take(c) {
			list = append(list, data[from:i+1])
			from = i + 1
		}
	}
	for _, one := range list {
		if Problem(one) != "" {
			return nil
		}
	}
	if n.depth > 0 || len(list) < 2 {
		return nil
	}
	return list
}
