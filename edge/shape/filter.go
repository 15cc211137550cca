package shape

import (
	"bytes"
	"strings"

	"agentstream/schema"
)

// Filter is which events of a run are shown. The zero Filter shows everything.
type Filter struct {
	// Agent leaves out what others than the agent say: words of a user, a system or a tool (the attribute actor). What a
	// running tool prints is shown.
	Agent bool

	children map[string]bool // nil: all; schema.RootLane is the run itself
	nested   [][]byte        // children whose descendants are shown as well, quoted
	types    map[string]bool // nil: all
	families []string        // prefixes, from patterns like tool.*
}

// NewFilter compiles lists of lanes and types. An empty list shows all; schema.RootLane is the run
// itself; a type that ends with .* stands for all types that begin so, and * for every one. nested
// shows what is below the children too, which needs producers that fill path in.
func NewFilter(children, types []string, nested bool) Filter {
	var f Filter
	for _, c := range children {
		if f.children == nil {
			f.children = make(map[string]bool, len(children))
		}
		f.children[c] = true
		if nested {
			f.nested = append(f.nested, []byte(`"`+c+`"`))
		}
	}
	for _, t := range types {
		if t == "*" {
			f.types, f.families = nil, nil
			break
		}
		if f.types == nil {
			f.types = make(map[string]bool, len(types))
		}
		if prefix, ok := strings.CutSuffix(t, "*"); ok {
			f.families = append(f.families, prefix)
			continue
		}
		f.types[t] = true
	}
	return f
}

// All reports whether nothing is hidden.
func (f *Filter) All() bool { return f.children == nil && f.types == nil && !f.Agent }

// Match reports whether a record is shown. What ends the run always is: a client must see the end.
func (f *Filter) Match(r schema.Record) bool {
	return f.All() || f.child(r) && f.typ(r) && !(f.Agent && isOfOthers(r)) || Terminal(r)
}

func (f *Filter) child(r schema.Record) bool {
	if f.children == nil {
		return true
	}
	if r.Child == nil {
		return f.children[schema.RootLane]
	}
	if f.children[string(r.Child)] {
		return true
	}
	if f.nested == nil {
		return false
	}
	path := pathOf(r.Attributes())
	for _, c := range f.nested {
		if bytes.Contains(path, c) {
			return true
		}
	}
	return false
}

func (f *Filter) typ(r schema.Record) bool {
	if f.types == nil || f.types[string(r.Type)] {
		return true
	}
	for _, prefix := range f.families {
		if len(r.Type) > len(prefix) && string(r.Type[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// isOfOthers reports whether a record is a piece of what others than the agent say.
func isOfOthers(r schema.Record) bool {
	if typ := string(r.Type); typ != schema.TypeTextDelta && typ != schema.TypeReasoningDelta {
		return false
	}
	_, rest, _ := bytes.Cut(r.Attributes(), []byte(`,"actor":"`))
	actor, _, _ := bytes.Cut(rest, []byte(`"`))
	switch string(actor) {
	case "user", "system", "tool":
		return true
	}
	return false
}

// pathOf returns the list of the path attribute; ids hold nothing that JSON escapes.
func pathOf(attributes []byte) []byte {
	_, rest, ok := bytes.Cut(attributes, []byte(`,"path":[`))
	if !ok {
		return nil
	}
	path, _, _ := bytes.Cut(rest, []byte("]"))
	return path
}

// Terminal reports whether a record is the root's run.lifecycle in a final state.
func Terminal(r schema.Record) bool {
	if r.Child != nil || string(r.Type) != schema.TypeRunLifecycle {
		return false
	}
	l, err := schema.ParseLifecycle(r.Payload())
	return err == nil && l.State.Final()
}
