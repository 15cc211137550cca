package gemini

import (
	"encoding/json"

	"agentstream/adapters/provider"
)

// arguments puts the pieces of streamed arguments together. It keeps the whole as a tree, and writes
// it as JSON text meanwhile, as far as the pieces come in the order of that text.
type arguments struct {
	root       node
	open       []*node // containers that the text is in, outermost first
	str        *node   // string that the text is in
	disordered bool    // a piece came that the text cannot hold any more
}

// node is one value.
type node struct {
	kind   byte // '{', '[', '"' or 'v' for another value; 0 when nothing is known
	text   []byte
	names  []string // of the members, in order
	byName map[string]*node
	items  []*node
}

// set takes a value, or a piece of a string when the one at the path is to be continued. It returns the
// text that follows from it; ok is false when the path has no place.
func (g *arguments) set(path []step, value json.RawMessage, more bool) (text []byte, ok bool) {
	chain, known, ok := g.root.walk(path)
	if !ok {
		return nil, false
	}
	leaf := chain[len(chain)-1]
	isNew := known < len(path)
	if !isNew && leaf.kind != '"' && leaf.kind != 'v' {
		return nil, false // an object or a list stands there
	}
	goesOn := !isNew && g.str == leaf && provider.IsString(value)
	if !g.disordered {
		switch {
		case isNew && (len(g.open) == 0 && known == 0 || known < len(g.open) && g.open[known] == chain[known]):
			text = g.descend(path, chain, known)
			text = g.write(text, value, more)
		case goesOn:
			text = g.write(nil, value, more)
		default:
			g.disordered = true
		}
	}
	switch {
	case goesOn:
		leaf.text = append(leaf.text, provider.Inner(value)...)
	case provider.IsString(value):
		leaf.kind, leaf.text = '"', append([]byte(nil), provider.Inner(value)...)
	default:
		leaf.kind, leaf.text = 'v', append([]byte(nil), value...)
	}
	if g.str = nil; more && leaf.kind == '"' {
		g.str = leaf
	}
	return text, true
}

// walk goes down a path and makes what is missing. chain are the values from the root on, known is how
// many steps of it were there before. ok is false when it leads nowhere; then nothing was made.
func (n *node) walk(path []step) (chain []*node, known int, ok bool) {
	chain = append(chain, n)
	for ; known < len(path); known++ {
		st := path[known]
		if n.kind != 0 && n.kind != st.container() {
			return nil, 0, false
		}
		next := n.child(st)
		if next == nil {
			break
		}
		n = next
		chain = append(chain, n)
	}
	for i, st := range path[known:] { // a new list begins at its beginning
		at := 0
		if i == 0 {
			at = len(n.items)
		}
		if st.list && st.index != at {
			return nil, 0, false
		}
	}
	for _, st := range path[known:] {
		next := &node{}
		n.kind = st.container()
		if st.list {
			n.items = append(n.items, next)
		} else {
			if n.byName == nil {
				n.byName = make(map[string]*node)
			}
			n.names, n.byName[st.name] = append(n.names, st.name), next
		}
		n = next
		chain = append(chain, n)
	}
	return chain, known, true
}

func (n *node) child(st step) *node {
	if !st.list {
		return n.byName[st.name]
	}
	if st.index < len(n.items) {
		return n.items[st.index]
	}
	return nil
}

// size returns the number of members or items.
func (n *node) size() int { return len(n.names) + len(n.items) }

// descend writes the text up to where the value at the end of the path begins: it ends what the path
// is not in, and begins what it enters.
func (g *arguments) descend(path []step, chain []*node, known int) []byte {
	text := g.leave(known + 1)
	if len(g.open) == 0 {
		g.open = append(g.open, chain[0])
		text = append(text, chain[0].kind)
	}
	for i := known; i < len(path); i++ {
		if chain[i].size() > 1 {
			text = append(text, ',')
		}
		if !path[i].list {
			text = append(append(text, provider.Quote(path[i].name)...), ':')
		}
		if i+1 < len(path) {
			g.open = append(g.open, chain[i+1])
			text = append(text, chain[i+1].kind)
		}
	}
	return text
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

// write writes a value, or a piece of a string that is open.
func (g *arguments) write(text []byte, value json.RawMessage, more bool) []byte {
	if !provider.IsString(value) {
		return append(text, value...)
	}
	if g.str == nil {
		text = append(text, '"')
	}
	text = append(text, provider.Inner(value)...)
	if !more {
		text = append(text, '"')
	}
	return text
}

// finish returns the rest of the text.
func (g *arguments) finish() []byte {
	if g.root.kind == 0 {
		return nil
	}
	return g.leave(0)
}

// encode returns the whole.
func (g *arguments) encode() json.RawMessage { return g.root.encode(nil) }

func (n *node) encode(b []byte) []byte {
	switch n.kind {
	case '"':
		return append(append(append(b, '"'), n.text...), '"')
	case '{', '[':
		b = append(b, n.kind)
		for i, name := range n.names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, provider.Quote(name)...), ':')
			b = n.byName[name].encode(b)
		}
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.encode(b)
		}
		return append(b, n.kind+2)
	case 0:
		return append(b, "null"...)
	}
	return append(b, n.text...)
}
