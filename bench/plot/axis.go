package plot

import (
	"math"
	"strconv"
	"strings"
)

// axis maps values to a position between 0 and 1.
type axis struct {
	log    bool
	lo, hi float64 // in value space, or its decimal logarithm
	ticks  []float64
}

// newAxis covers all values from lo to hi with round ticks. A linear axis of values that are not
// negative begins at zero, because a length that does not begin at zero misleads.
func newAxis(lo, hi float64, log bool, want int) axis {
	if log {
		return logAxis(lo, hi)
	}
	lo = min(lo, 0)
	if hi <= lo {
		hi = lo + 1
	}
	step := roundStep((hi - lo) / float64(want))
	a := axis{lo: math.Floor(lo/step) * step, hi: math.Ceil(hi/step-1e-9) * step}
	for i := 0; ; i++ {
		v := a.lo + float64(i)*step
		if v > a.hi+step/2 {
			return a
		}
		a.ticks = append(a.ticks, v)
	}
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten that is not below raw.
func roundStep(raw float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= raw*(1-1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// logAxis has a tick per power of ten, and at 2 and 5 as well when there are few powers.
func logAxis(lo, hi float64) axis {
	from, to := math.Floor(math.Log10(lo)+1e-9), math.Ceil(math.Log10(hi)-1e-9)
	if to <= from {
		to = from + 1
	}
	a := axis{log: true, lo: from, hi: to}
	parts := []float64{1}
	if to-from <= 2 {
		parts = []float64{1, 2, 5}
	}
	every := math.Ceil((to - from) / 10)
	for e := from; e <= to; e += every {
		for _, m := range parts {
			if v := m * math.Pow(10, e); math.Log10(v) <= to+1e-9 {
				a.ticks = append(a.ticks, v)
			}
		}
	}
	return a
}

func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return (v - a.lo) / (a.hi - a.lo)
}

// number writes a value for people: four digits at most, thousands as k, M, G.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	unit := ""
	for _, u := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= u.from*(1-1e-9) {
			div := map[string]float64{"G": 1e9, "M": 1e6, "k": 1e3}[u.name]
			v, unit = v/div, u.name
			break
		}
	}
	if a := math.Abs(v); a < 1e-4 {
		return strconv.FormatFloat(v, 'g', 3, 64) + unit
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s + unit
}
