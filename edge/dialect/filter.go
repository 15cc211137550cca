package dialect

import (
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// Filter selects the events of a run that a client wants. What is left out is explained to it by first_seq.
// The zero Filter is everything. Both lists are sorted and without doubles. The root's terminal event
// passes every filter: a client must see the end.
type Filter struct {
	Children []string // lanes; schema.RootLane is the run itself; nil: all
	Types    []string // names of event types; nil: all
	Nested   bool     // Children stand for all that is below them as well
	Agent    bool     // without the words of others than the agent: deltas of an actor that is a user, a system or a tool
}

// Key is the filter as one text: equal for filters that mean the same.
func (f Filter) Key() string {
	if f.All() {
		return ""
	}
	nested := ""
	if f.Nested {
		nested = "+"
	}
	agent := ""
	if f.Agent {
		agent = ";agent"
	}
	return strings.Join(f.Children, ",") + nested + ";" + strings.Join(f.Types, ",") + agent
}

// All reports whether nothing is left out.
func (f Filter) All() bool { return len(f.Children) == 0 && len(f.Types) == 0 && !f.Agent }

// HasType reports whether Types shows a type.
func (f Filter) HasType(name string) bool {
	return len(f.Types) == 0 || slices.ContainsFunc(withNative(f.Types), func(t string) bool {
		family, all := strings.CutSuffix(t, "*")
		return t == name || all && strings.HasPrefix(name, family)
	})
}

// MaxList bounds a list that a client sends to say what it wants: names, ids, keys.
const MaxList = 64

// SplitList takes names that are separated by commas or given one by one.
func SplitList(values []string) (list []string) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name != "" {
				list = append(list, name)
			}
		}
	}
	return list
}

// Normal checks a filter and brings it into its one form. The error wraps ErrBadRequest.
func (f Filter) Normal() (Filter, error) {
	if len(f.Children) > MaxList || len(f.Types) > MaxList {
		return f, Refuse(ErrBadRequest, "types and child must each have at most %d names, not %d and %d", MaxList,
			len(f.Types), len(f.Children))
	}
	for _, c := range f.Children {
		if c == schema.RootLane {
			continue
		}
		if err := schema.ValidRunID(c); err != nil {
			return f, BadValue(fmt.Errorf("%w: %w", ErrBadRequest, err), "child", c,
				"ids of children, of the characters A-Z a-z 0-9 _ -, or - for the run itself")
		}
	}
	for _, t := range f.Types {
		if !validPattern(t) {
			return f, BadValue(ErrBadRequest, "types", t, "names of types such as text.delta, beginnings such as tool.*, or *")
		}
	}
	f.Types = withNative(f.Types)
	slices.Sort(f.Children)
	slices.Sort(f.Types)
	f.Children, f.Types = slices.Compact(f.Children), slices.Compact(f.Types)
	if slices.Contains(f.Types, "*") {
		f.Types = nil
	}
	if len(f.Children) == 0 {
		f.Nested = false
	}
	return f, nil
}

// nativeTypes stands for the eight types of the published protocol (native §3), for clients that know no
// others.
const nativeTypes = "native"

// withNative puts the eight types in the place of nativeTypes.
func withNative(types []string) []string {
	if !slices.Contains(types, nativeTypes) {
		return types
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == nativeTypes })
	for _, t := range schema.Types() {
		if t.Native {
			types = append(types, t.Name)
		}
	}
	return types
}

// validPattern takes the name of a type, one that ends with .*, and * alone.
func validPattern(t string) bool {
	name := strings.TrimSuffix(t, ".*")
	if t == "*" {
		return true
	}
	if name == "" || len(name) > 100 {
		return false
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
