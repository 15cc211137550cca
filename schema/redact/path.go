package redact

import (
	"fmt"
	"strconv"
	"strings"

	"agentstream/schema/jsonscan"
)

// step is a step of a path: a member by name, an element by number, or all of what there is.
type step struct {
	name   string
	index  int
	list   bool // index counts; with all: every element
	all    bool
	object bool // name counts; with all: every member
}

const (
	maxPath  = 256 // bytes
	maxSteps = 32
)

// parsePath reads a path of a payload, a small part of RFC 9535: $ first or left out, .name and ['name'] for a member,
// .* for every member, [3] for an element, [*] for every element.
func parsePath(text string) (steps []step, err error) {
	if len(text) > maxPath {
		return nil, fmt.Errorf("path of %d bytes, %d allowed: %w", len(text), maxPath, ErrRules)
	}
	rest := strings.TrimPrefix(text, "$")
	if rest == text && !strings.HasPrefix(rest, "[") {
		rest = "." + rest
	}
	for rest != "" {
		var s step
		if s, rest, err = nextStep(rest); err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		steps = append(steps, s)
		if len(steps) > maxSteps {
			return nil, fmt.Errorf("path of more than %d steps: %w", maxSteps, ErrRules)
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("path %q names the whole payload: %w", text, ErrRules)
	}
	return steps, nil
}

func nextStep(text string) (s step, rest string, err error) {
	if name, ok := strings.CutPrefix(text, "."); ok {
		end := strings.IndexAny(name, ".[")
		if end < 0 {
			end = len(name)
		}
		s = step{name: name[:end], object: true, all: name[:end] == "*"}
		if s.name == "" {
			return s, "", fmt.Errorf("a name is missing: %w", ErrRules)
		}
		return s, name[end:], nil
	}
	if name, ok := strings.CutPrefix(text, "['"); ok {
		name, rest, ok = strings.Cut(name, "']")
		if !ok || name == "" {
			return s, "", fmt.Errorf("['name'] is not closed: %w", ErrRules)
		}
		return step{name: name, object: true}, rest, nil
	}
	number, rest, ok := strings.Cut(strings.TrimPrefix(text, "["), "]")
	if !ok || text[0] != '[' {
		return s, "", fmt.Errorf("%q is no step: %w", text, ErrRules)
	}
	if number == "*" {
		return step{list: true, all: true}, rest, nil
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return s, "", fmt.Errorf("[%.20s] is neither a number nor [*]: %w", number, ErrRules)
	}
	return step{list: true, index: int(n)}, rest, nil
}

// find calls fn with every value of a path, in their order, but not with what the framing needs. v is a valid JSON value;
// own: it is the producer's own.
func find(v []byte, path []step, own bool, depth int, fn func(v []byte, own bool)) {
	if len(path) == 0 {
		fn(v, own)
		return
	}
	if len(v) == 0 {
		return
	}
	s := path[0]
	switch {
	case s.object && v[0] == '{':
		for name, value := range jsonscan.Members(v) {
			if (s.all || string(name) == s.name) && !isKept(string(name), value, own, depth) {
				find(value, path[1:], own || isOwn(string(name)), depth+1, fn)
			}
		}
	case s.list && v[0] == '[':
		n := 0
		for value := range jsonscan.Elements(v) {
			if s.all || n == s.index {
				find(value, path[1:], own, depth+1, fn)
			}
			n++
		}
	}
}
