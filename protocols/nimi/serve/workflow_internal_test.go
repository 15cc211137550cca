package serve

import (
	"strconv"
	"testing"
)

// TestCircular counts the nodes of a graph that never come to their turn, whatever else there is, and however often an
// edge is there.
func TestCircular(t *testing.T) {
	for name, c := range map[string]struct {
		before map[string][]string
		want   int
	}{
		"none":      {map[string][]string{}, 0},
		"a chain":   {map[string][]string{"a": nil, "b": {"a"}, "c": {"b", "a", "b"}}, 0},
		"itself":    {map[string][]string{"a": {"a"}}, 1},
		"two":       {map[string][]string{"a": {"b"}, "b": {"a"}, "c": nil}, 2},
		"behind it": {map[string][]string{"a": {"b"}, "b": {"a"}, "c": {"b"}, "d": {}}, 3},
	} {
		if got := circular(c.before); got != c.want {
			t.Errorf("%s: %d nodes wait, want %d", name, got, c.want)
		}
	}
	chain := map[string][]string{"0": nil}
	for i := 1; i < 256; i++ {
		for range 400 { // a client may write an edge as often as it likes
			chain[strconv.Itoa(i)] = append(chain[strconv.Itoa(i)], strconv.Itoa(i-1))
		}
	}
	if got := circular(chain); got != 0 {
		t.Errorf("%d nodes of a chain wait", got)
	}
}
