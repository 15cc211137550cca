package dialect

import (
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// maxFilter bounds the names of one filter.
const maxFilter = 64

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
	if len(f.Children) > maxFilter || len(f.Types) > maxFilter {
		return f, fmt.Errorf("filter has more than %d names: %w", maxFilter, ErrBadRequest)
	}
	for _, c := range f.Children {
		if c == schema.RootLane {
			continue
		}
		if err := schema.ValidRunID(c); err != nil {
			return f, fmt.Errorf("child: %w: %w", ErrBadRequest, err)
		}
	}
	for _, t := range f.Types {
		if !validPattern(t) {
			return f, fmt.Errorf("types: not a name, a name that ends with .*, or *: %w", ErrBadRequest)
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
