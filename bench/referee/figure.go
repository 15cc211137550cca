package main

import (
	"math"
	"strconv"
	"strings"
)

// figure writes a number with three significant digits, or whole with thousands apart.
func figure(v float64) string {
	if math.Abs(v) >= 1000 {
		return thousands(int(math.Round(v)))
	}
	if v == math.Trunc(v) {
		return strconv.Itoa(int(v))
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	s := strconv.FormatFloat(v, 'f', min(max(digits, 0), 6), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
