package rest

import "testing"

func TestLineOf(t *testing.T) {
	for _, tt := range []struct {
		body string
		i    int
		want int
	}{
		{"{}\n{}\n", 0, 1}, {"{}\n{}\n", 1, 2}, {"\n\r\n{}\n\n{}", 0, 3}, {"\n\r\n{}\n\n{}", 1, 5},
		{"[{},\n{}]", 1, 2}, {" \n[{},{},{}]", 2, 3}, {"{\n\"type\":1}", 0, 1},
	} {
		if got := lineOf([]byte(tt.body), tt.i); got != tt.want {
			t.Errorf("%q: event %d in line %d, want %d", tt.body, tt.i, got, tt.want)
		}
	}
}
