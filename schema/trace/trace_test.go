package trace_test

import (
	"net/http"
	"strings"
	"testing"

	"agentstream/schema/trace"
)

const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The rules are those of https://www.w3.org/TR/trace-context/#traceparent-header; "" is what is ignored.
func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		good:                      good,
		strings.ToUpper(good):     "",
		good + "-":                "",
		good + "x":                "",
		good[:54]:                 "",
		"01" + good[2:]:           good,
		"01" + good[2:] + "-more": good,
		"01" + good[2:] + "more":  "",
		"ff" + good[2:]:           "",
		"0g" + good[2:]:           "",
		good[:53] + "00":          good[:53] + "00",
		good[:53] + "ff":          good[:53] + "03",
		good[:53] + "0x":          "",
		strings.Replace(good, "-00f067aa0ba902b7", "-0000000000000000", 1):                    "",
		strings.Replace(good, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1): "",
		strings.Replace(good, "-", "_", 1):                                                    "",
		" " + good:                                                                            "",
		"":                                                                                    "",
		`00-4bf92f3577b34da6a3ce929d0e0e473"-00f067aa0ba902b7-01`: "",
		"00-" + strings.Repeat("é", 16) + "-00f067aa0ba902b7-01":  "",
		strings.Repeat("0", 1<<20):                                "",
	} {
		got := ""
		if p, ok := trace.Parse(s); ok {
			got = p.String()
		}
		if got != want {
			t.Errorf("%.80q: %q, want %q", s, got, want)
		}
	}
}

// A request without one costs no memory, and one with two has none.
func TestOf(t *testing.T) {
	h := http.Header{"Accept": {"a"}, "Authorization": {"b"}}
	if n := testing.AllocsPerRun(100, func() {
		if trace.Of(h) != "" {
			t.Error("there is none")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	h.Set("traceparent", good)
	if got := trace.Of(h); got != good {
		t.Errorf("%q", got)
	}
	h.Add("traceparent", good)
	if got := trace.Of(h); got != "" {
		t.Errorf("of two: %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("cc-" + good[3:] + "-x")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := trace.Parse(s)
		if again, same := trace.Parse(p.String()); ok && (!same || again != p) {
			t.Errorf("%q becomes %q", s, p)
		}
	})
}
