package otlp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// attributes are those of a span by their names.
type attributes map[string]json.RawMessage

// read returns the attributes of a list.
func read(list provider.Fields) attributes {
	a := make(attributes, len(list))
	for _, f := range list {
		a[f.Name] = f.Value
	}
	return a
}

// first returns the first attribute that has a value.
func (a attributes) first(names ...string) json.RawMessage {
	for _, name := range names {
		if v := a[name]; provider.HasValue(v) {
			return v
		}
	}
	return nil
}

// str returns the first attribute that is a text and not empty.
func (a attributes) str(names ...string) string {
	for _, name := range names {
		if s, _ := jsonscan.Unquote(a[name]); s != "" {
			return s
		}
	}
	return ""
}

// number returns the first attribute that is a whole number; conventions write some as text or as a fraction.
func (a attributes) number(names ...string) (int, bool) {
	for _, name := range names {
		f, err := strconv.ParseFloat(strings.Trim(string(a[name]), `"`), 64)
		if err == nil && f >= 0 && f < 1<<53 {
			return int(f), true
		}
	}
	return 0, false
}

// value returns the first attribute that has a value; a text that holds JSON is that JSON.
func (a attributes) value(names ...string) json.RawMessage { return unwrap(a.first(names...)) }

// list returns the elements of the first attribute that is a list, or a text that holds one.
func (a attributes) list(names ...string) []json.RawMessage {
	return provider.Elements(a.value(names...))
}

// unwrap returns the JSON that a text holds, an object or a list, and anything else as it is.
func unwrap(v json.RawMessage) json.RawMessage {
	if !jsonscan.IsString(v) {
		return v
	}
	inner := strings.TrimSpace(jsonscan.DecodeString(v))
	if len(inner) == 0 || inner[0] != '{' && inner[0] != '[' || provider.Problem([]byte(inner)) != "" {
		return v
	}
	return provider.OneLine([]byte(inner))
}

// decodeText returns the JSON that a text holds, of any kind, and anything else as it is.
func decodeText(v json.RawMessage) json.RawMessage {
	inner := []byte(jsonscan.DecodeString(v))
	if !jsonscan.IsString(v) || provider.Problem(inner) != "" {
		return v
	}
	return provider.OneLine(inner)
}

// textOf returns a value as a text of JSON: a text as it is, anything else in the words of JSON.
func textOf(v json.RawMessage) json.RawMessage {
	if v == nil || jsonscan.IsString(v) {
		return v
	}
	return provider.Quote(string(v))
}

// attributeNode is a part of attributes whose names are paths: prefix.0.role, prefix.0.tool_calls.1.name.
type attributeNode struct {
	value json.RawMessage
	named map[string]*attributeNode
}

// tree returns what stands below a prefix.
func (a attributes) tree(prefix string) *attributeNode {
	root := &attributeNode{}
	for name, v := range a {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			continue
		}
		at := root
		for part := range strings.SplitSeq(rest, ".") {
			next := at.at(part)
			if next == nil {
				next = &attributeNode{}
				if at.named == nil {
					at.named = make(map[string]*attributeNode)
				}
				at.named[part] = next
			}
			at = next
		}
		at.value = v
	}
	return root
}

// at returns what stands below a path; nil when there is nothing. The node may be nil.
func (n *attributeNode) at(path ...string) *attributeNode {
	for _, part := range path {
		if n == nil {
			return nil
		}
		n = n.named[part]
	}
	return n
}

// get returns the value below a path.
func (n *attributeNode) get(path ...string) json.RawMessage {
	below := n.at(path...)
	if below == nil {
		return nil
	}
	return below.value
}

// str returns the text below a path.
func (n *attributeNode) str(path ...string) string {
	s, _ := jsonscan.Unquote(n.get(path...))
	return s
}

// each returns the parts that have a number, in the order of the numbers.
func (n *attributeNode) each() []*attributeNode {
	if n == nil {
		return nil
	}
	var at []int
	for name := range n.named {
		i, err := strconv.Atoi(name)
		if err == nil && strconv.Itoa(i) == name {
			at = append(at, i)
		}
	}
	slices.Sort(at)
	list := make([]*attributeNode, len(at))
	for i, k := range at {
		list[i] = n.named[strconv.Itoa(k)]
	}
	return list
}
