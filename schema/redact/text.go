package redact

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// stretch is what a rule has found in a text.
type stretch struct {
	from, to int
	rule     int
	more     class // bytes that it goes on with, where the text ends with it
	rest     bool  // of one that began in a text before
}

// parts returns what the rules find in a text of an event of a type, in order, none overlapping: of two that overlap the
// first one grows. rest is a known secret that the text ends within, of which the parts hold nothing; ok: there is one.
func (r *Rules) parts(typ, text string) (list []stretch, rest secret, ok bool) {
	if r.known {
		for i := 0; i < len(text); {
			s, found := r.next(text, i)
			if !found {
				break
			}
			rule := r.kinds[s.kind]
			if !r.list[rule].isFor(typ) {
				i = s.from + 1
				continue
			}
			if !s.whole {
				rest, ok = s, true
				break
			}
			list = append(list, stretch{from: s.from, to: s.to, rule: rule, more: s.class})
			i = s.to
		}
	}
	for n := range r.list {
		c := &r.list[n]
		if c.pattern == nil || c.literal != "" && !strings.Contains(text, c.literal) || !c.isFor(typ) {
			continue
		}
		for _, at := range c.pattern.FindAllStringIndex(text, -1) {
			if at[0] < at[1] {
				list = append(list, stretch{from: at[0], to: at[1], rule: n})
			}
		}
	}
	return merge(list), rest, ok
}

// merge sorts parts and joins those that overlap.
func merge(list []stretch) []stretch {
	if len(list) < 2 {
		return list
	}
	slices.SortStableFunc(list, func(a, b stretch) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	out := list[:1]
	for _, p := range list[1:] {
		if last := &out[len(out)-1]; p.from < last.to {
			if p.to > last.to {
				last.to, last.more = p.to, p.more
			}
		} else {
			out = append(out, p)
		}
	}
	return out
}

// whole returns what the rules find in a text that nothing follows.
func (r *Rules) whole(typ, text string) []stretch {
	list, rest, ok := r.parts(typ, text)
	if ok && rest.kind == privateKeys && rest.sure {
		list = merge(append(list, stretch{from: rest.from, to: rest.to, rule: r.kinds[privateKeys]}))
	}
	return list
}

// plain reports whether no text within bytes of JSON can hold what is looked for. It is asked for every event, and
// passes over the bytes once.
func (r *Rules) plain(b []byte) bool {
	if !r.texts {
		return true
	}
	if r.loose || bytes.Contains(b, []byte(`\u`)) {
		return false
	}
	for i := range r.list {
		if l := r.list[i].literal; l != "" && (strings.ContainsAny(l, `"\/`) || bytes.Contains(b, []byte(l))) {
			return false
		}
	}
	return !r.known || r.isClean(b)
}

// isClean reports whether bytes hold no beginning of a known secret.
func (r *Rules) isClean(b []byte) bool {
	digits, last := 0, byte(0)
	for i, c := range b {
		if suspectPair[last][c] && hasBeginning(b[i-1:]) {
			return false
		}
		last = c
		if c-'0' > 9 {
			if c != ' ' && c != '-' {
				digits = 0
			}
			continue
		}
		digits++
		if digits >= leastDigits && r.kinds[cards] >= 0 {
			return false
		}
	}
	return true
}

// hasBeginning reports whether bytes begin as a known secret does.
func hasBeginning(b []byte) bool {
	for _, s := range byFirst[b[0]] {
		if len(b) >= len(s.begin) && string(b[:len(s.begin)]) == s.begin {
			return true
		}
	}
	switch b[0] {
	case tokenBegin[0]:
		return bytes.HasPrefix(b, []byte(tokenBegin))
	case pemBegin[0]:
		return bytes.HasPrefix(b, []byte(pemBegin))
	}
	return false
}
