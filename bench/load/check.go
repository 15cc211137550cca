package load

import (
	"slices"
	"sort"
)

// numberRange is the numbers from, from+1 … to-1 of a run.
type numberRange struct{ from, to int64 }

// account is what one watcher has had of its run: every number is missing, or came once, or more
// often. It is not locked.
type account struct {
	next    int64         // all below are had, or in missing
	missing []numberRange // ascending, apart from each other
	had     int64         // distinct numbers
	dup     int64
	late    int64 // came behind a higher number: out of order
}

// see counts number n and says whether it is new.
func (a *account) see(n int64) bool {
	switch {
	case n == a.next:
		a.next++
	case n > a.next:
		a.missing = append(a.missing, numberRange{a.next, n})
		a.next = n + 1
	case !a.fill(n):
		a.dup++
		return false
	default:
		a.late++
	}
	a.had++
	return true
}

// fill takes n out of what is missing.
func (a *account) fill(n int64) bool {
	i := sort.Search(len(a.missing), func(i int) bool { return a.missing[i].to > n })
	if i == len(a.missing) || a.missing[i].from > n {
		return false
	}
	m := a.missing[i]
	rest := make([]numberRange, 0, 2)
	if m.from < n {
		rest = append(rest, numberRange{m.from, n})
	}
	if n+1 < m.to {
		rest = append(rest, numberRange{n + 1, m.to})
	}
	a.missing = slices.Replace(a.missing, i, i+1, rest...)
	return true
}

// countLost counts what is missing of the numbers below sent, without those that the server has never
// acknowledged: refused is ascending.
func (a *account) countLost(sent int64, refused []numberRange) (n int64) {
	missing := a.missing
	if a.next < sent {
		missing = append(slices.Clip(missing), numberRange{a.next, sent})
	}
	for _, m := range missing {
		n += m.to - m.from
		for _, r := range refused {
			n -= max(0, min(m.to, r.to)-max(m.from, r.from))
		}
	}
	return n
}
