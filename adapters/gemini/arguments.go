package gemini

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// arguments puts the pieces of streamed arguments together. It keeps the whole as a tree, and writes
// it as JSON text meanwhile, as far as the pieces come in the order of that text.
type arguments struct {
	root       node
	open       []*node // containers that the text is in, outermost first
	str        *node   // string that goes on
	disordered bool    // a piece came that the text cannot hold any more
}

// node is one value.
type node struct {
	head   []byte // what stands before it in the text: a comma, and its name
	kind   byte   // '{' or '['; 0 for another value
	text   []byte // of another value
	kids   []*node
	byName map[string]*node
}

// set takes a value, or a piece of a string when the one at the path is to be continued. It returns the
// text that follows from it; ok is false when the path has no place.
func (g *arguments) set(path []step, value json.RawMessage, more bool) (text []byte, ok bool) {
	if g.open == nil {
		g.root.kind, g.open = '{', []*node{&g.root}
	}
	n, known := g.root.walk(path)
	isNew := known < len(path)
	if isNew && !n.canExtend(path[known:]) || !isNew && n.kind != 0 {
		return nil, false
	}
	goesOn := !isNew && g.str == n && jsonscan.IsString(value)
	inOrder := isNew && known < len(g.open) && g.open[known] == n
	g.disordered = g.disordered || !goesOn && !inOrder
	if isNew {
		text = g.leave(known + 1)
		if len(g.root.kids) == 0 {
			text = append(text, '{')
		}
		for i, st := range path[known:] {
			n = n.add(st)
			text = append(text, n.head...)
			if rest := path[known+i+1:]; len(rest) > 0 {
				n.kind = rest[0].in
				text = append(text, n.kind)
				g.open = append(g.open, n)
			}
		}
	}
	if goesOn {
		value = value[1:]
		n.text = append(n.text[:len(n.text)-1], value...)
	} else {
		n.text = bytes.Clone(value)
	}
	g.str = nil
	if more && n.text[0] == '"' {
		g.str = n
		value = value[:len(value)-1]
	}
	if g.disordered {
		return nil, true
	}
	return append(text, value...), true
}

// walk goes down a path as far as there is something, which is known steps.
func (n *node) walk(path []step) (end *node, known int) {
	for known < len(path) && n.kind == path[known].in {
		st := path[known]
		next := n.byName[st.name]
		if st.in == '[' && st.index < len(n.kids) {
			next = n.kids[st.index]
		}
		if next == nil {
			break
		}
		n = next
		known++
	}
	return n, known
}

// canExtend reports whether a path can go on from the node with what is new. A new list begins at its beginning.
func (n *node) canExtend(path []step) bool {
	at := len(n.kids)
	for _, st := range path {
		if st.in == '[' && st.index != at {
			return false
		}
		at = 0
	}
	return n.kind == path[0].in
}

// add makes a member or an item.
func (n *node) add(st step) *node {
	next := &node{}
	if len(n.kids) > 0 {
		next.head = []byte{','}
	}
	n.kids = append(n.kids, next)
	if st.in == '[' {
		return next
	}
	next.head = append(append(next.head, provider.Quote(st.name)...), ':')
	if n.byName == nil {
		n.byName = make(map[string]*node)
	}
	n.byName[st.name] = next
	return next
}

// leave ends the open string, and the containers but the outermost of them.
func (g *arguments) leave(outer int) (text []byte) {
	if g.str != nil {
		text = append(text, '"')
		g.str = nil
	}
	for len(g.open) > outer {
		last := len(g.open) - 1
		text = append(text, g.open[last].kind+2) // { and }, [ and ] are two apart
		g.open = g.open[:last]
	}
	return text
}

// encode writes the whole of a value.
func (n *node) encode(b []byte) []byte {
	b = append(b, n.head...)
	if n.kind == 0 {
		return append(b, n.text...)
	}
	b = append(b, n.kind)
	for _, kid := range n.kids {
		b = kid.encode(b)
	}
	return append(b, n.kind+2)
}

// step of a path: a member or an item.
type step struct {
	name  string
	index int
	in    byte // what it is in: '{' or '['
}

// Bounds of a path.
const (
	maxSteps = 64
	maxPath  = 8 << 10 // bytes
)

// requote writes the inside of quotes as that of a JSON string.
var requote = strings.NewReplacer(`\\`, `\\`, `\"`, `\"`, `\'`, `'`, `"`, `\"`)

// parsePath appends the steps of a singular path of RFC 9535 that begins with a member: $.a.b[0]['c d'].
func parsePath(path []step, s string) (steps []step, ok bool) {
	rest, ok := strings.CutPrefix(s, "$")
	ok = ok && len(s) <= maxPath && utf8.ValidString(s)
	for ok && rest != "" && len(path) < maxSteps {
		var st step
		st, rest, ok = readStep(rest)
		path = append(path, st)
	}
	return path, ok && rest == "" && len(path) > 0 && path[0].in == '{'
}

// readStep reads what a path begins with: a name, an index of up to seven digits, or a name in quotes.
func readStep(path string) (st step, rest string, ok bool) {
	inner, isBracket := strings.CutPrefix(path, "[")
	if !isBracket {
		size := 1 + strings.IndexAny(path[1:], ".[")
		if size == 0 {
			size = len(path)
		}
		return step{name: path[1:size], in: '{'}, path[size:], path[0] == '.' && size > 1
	}
	digits, rest, _ := strings.Cut(inner, "]")
	if n, err := strconv.ParseUint(digits, 10, 32); err == nil && len(digits) <= 7 {
		return step{index: int(n), in: '['}, rest, len(digits) < len(inner)
	}
	size := 1
	for size < len(inner) && inner[size] != inner[0] {
		if inner[size] == '\\' {
			size++
		}
		size++
	}
	if size+2 > len(inner) || inner[0] != '\'' && inner[0] != '"' || inner[size+1] != ']' {
		return step{}, "", false
	}
	var name string
	err := json.Unmarshal(provider.Enquote([]byte(requote.Replace(inner[1:size]))), &name)
	return step{name: name, in: '{'}, inner[size+2:], err == nil
}
