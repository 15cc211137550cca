package jsonscan

import (
	"iter"
)

// Members returns the fields of a valid object, in order: the decoded name, and the value as it stands. Anything else
// has none. What is damaged ends early.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		i := SkipSpace(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		for i = SkipSpace(object, i+1); i < len(object) && object[i] == '"'; {
			var name, value []byte
			if name, value, i = member(object, i); i < 0 || !yield(name, value) {
				return
			}
		}
	}
}

// Values returns the values of the fields with some names, as they stand: of two fields with one name the last; nil
// for a name that the object has not got. It passes through the object once, however many names there are.
func Values(object []byte, names []string) [][]byte {
	values, at := make([][]byte, len(names)), make(map[string]int, len(names))
	for i, name := range names {
		if _, twice := at[name]; !twice {
			at[name] = i
		}
	}
	for name, v := range Members(object) {
		if i, wanted := at[string(name)]; wanted {
			values[i] = v
		}
	}
	for i, name := range names {
		values[i] = values[at[name]]
	}
	return values
}

// member returns the field of an object that begins at an index, and the index of the next one; -1 when it is damaged.
func member(object []byte, i int) (name, value []byte, next int) {
	nameEnd, plain := skipName(object, i)
	value, end := valueAfter(object, nameEnd)
	if end < 0 {
		return nil, nil, -1
	}
	if name = object[i+1 : nameEnd-1]; !plain {
		name = []byte(DecodeString(object[i:nameEnd]))
	}
	return name, value, Behind(object, end)
}

// skipName returns the index after the string that starts at i, as SkipString does, and whether it has no escapes. It
// is for what is short: a search for each byte costs more.
func skipName(object []byte, i int) (end int, plain bool) {
	for j := i + 1; j < len(object); j++ {
		switch object[j] {
		case '"':
			return j + 1, true
		case '\\':
			return SkipString(object, i), false
		}
	}
	return -1, false
}

// valueAfter returns the value after a name that ends at an index, and where it ends; -1 when it is damaged.
func valueAfter(object []byte, nameEnd int) (value []byte, end int) {
	if nameEnd < 0 {
		return nil, -1
	}
	colon := SkipSpace(object, nameEnd)
	if colon >= len(object) || object[colon] != ':' {
		return nil, -1
	}
	start := SkipSpace(object, colon+1)
	if end = SkipValue(object, start); end < 0 {
		return nil, -1
	}
	return object[start:end], end
}

// RawMember returns the field of an object that begins at an index: the name as it stands, in its quotes, the value,
// and the index behind it; -1 when it is damaged.
func RawMember(object []byte, i int) (name, value []byte, end int) {
	if i >= len(object) || object[i] != '"' {
		return nil, nil, -1
	}
	nameEnd, _ := skipName(object, i)
	if value, end = valueAfter(object, nameEnd); end < 0 {
		return nil, nil, -1
	}
	return object[i:nameEnd], value, end
}

// Elements returns the elements of a valid list, as they stand. Anything else has none. What is damaged ends early.
func Elements(list []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		i := SkipSpace(list, 0)
		if i >= len(list) || list[i] != '[' {
			return
		}
		for i = SkipSpace(list, i+1); i < len(list) && list[i] != ']'; {
			end := SkipValue(list, i)
			if end < 0 || !yield(list[i:end]) {
				return
			}
			i = Behind(list, end)
		}
	}
}

// Behind returns the index of what follows a value that ends at an index, and a comma.
func Behind(b []byte, end int) int {
	i := SkipSpace(b, end)
	if i < len(b) && b[i] == ',' {
		i = SkipSpace(b, i+1)
	}
	return i
}

// IsString reports whether a value is a string.
func IsString(v []byte) bool { return len(v) >= 2 && v[0] == '"' }

// Inner returns what is between the quotes of a string, escapes and all; nil for anything else.
func Inner(v []byte) []byte {
	if !IsString(v) {
		return nil
	}
	return v[1 : len(v)-1]
}
