package provider

import (
	"slices"
	"strings"
	"testing"
)

func frames(t *testing.T, body string, step, most int) (out []string) {
	t.Helper()
	f := Framer{max: most}
	f.emit = func(fr frame) {
		s := fr.event + "|" + string(fr.data)
		if fr.problem != "" {
			s += "|" + fr.problem
		}
		out = append(out, s)
	}
	for rest := []byte(body); len(rest) > 0; {
		n := min(step, len(rest))
		f.write(rest[:n])
		rest = rest[n:]
		if len(f.line) > most || len(f.data) > most+1 {
			t.Fatalf("%d and %d bytes are kept, %d may be", len(f.line), len(f.data), most)
		}
	}
	f.close()
	return out
}

// TestForms: every form that a body may have, in pieces of any size.
func TestForms(t *testing.T) {
	for body, want := range map[string][]string{
		"event: a\ndata: {}\n\ndata: 1\ndata: 2\n\n":                     {"a|{}", "|1\n2"},
		"data: {}\r\n\r\n: c\r\n\r\ndata:x":                              {"|{}", "|x"},
		"{\"a\":1}\n\n {\"b\":2} \n{broken\n{}":                          {"|{\"a\":1}", "|{\"b\":2}", "|{broken", "|{}"},
		"[{\"a\":[1]}\n,\r\n{\"b\":\"}{\\\"\"}\n]":                       {"|{\"a\":[1]}", "|{\"b\":\"}{\\\"\"}"},
		"data: {}\ndata: {\"a\":1}\ndata: [DONE]\n":                      {"|{}", "|{\"a\":1}", "|[DONE]"},
		"event: a\ndata: {}\nevent: b\ndata: {}\n\nevent: c\n\ndata: {}": {"a|{}", "b|{}", "|{}"},
		"data: {}\nevent: late\n\n":                                      {"late|{}"},
		"data: {\ndata:  \"a\": {}\ndata: }\n\n":                         {"|{\n \"a\": {}\n}"},
		"data: {}\n\n{\"error\":1}\ndata: {}\n\n":                        {"|{}", "|{\"error\":1}", "|{}"},
		"data: {}\n\n{\n\"error\":{\n}\n}\n\ndata: {}\n\n":               {"|{}", "|{\n\"error\":{\n}\n}", "|{}"},
		"data: {}\n\nerror: {\"code\":1}\n\nerror: gone\n": {"|{}", "error|{\"error\":{\"code\":1}}",
			"error|{\"error\":\"gone\"}"},
		"data: data: {}\n\n":                      {"|{}"},
		"{\"error\":1}\ndata: {}\n\ndata: {}\n\n": {"|{\"error\":1}", "|{}", "|{}"},
		"[]": nil,
		"{\n  \"a\": {\n \"b\": \"]\" }\n}\n{\"c\":\n1}": {"|{  \"a\": {\n \"b\": \"]\" }\n}", "|{\"c\":\n1}"},
		"[{\"a\":1},{\"cut\":":                           {"|{\"a\":1}", "|{\"cut\":"},
		"{\n":                                            {"|{"},
	} {
		for _, step := range []int{1, 2, 1000} {
			if got := frames(t, body, step, 1000); !slices.Equal(got, want) {
				t.Errorf("%q in steps of %d\n got %q\nwant %q", body, step, got, want)
			}
		}
	}
}

// TestFrameBounds: whatever comes, no more is kept than one frame may have.
func TestFrameBounds(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, body := range []string{
		"data: " + long + "\n\n", ":" + long + "\n\ndata: " + long + "\ndata: y\n\n", "{\"a\":\"" + long + "\"}\n",
		"[{\"a\":\"" + long + "\"}]",
		"{\n\"a\":\"" + long + "\"}",
	} {
		for _, step := range []int{1, 7, 100_000} {
			if got := frames(t, body, step, 1000); len(got) != 1 || !strings.HasSuffix(got[0], "longer than a frame may be") {
				t.Errorf("%.20q in steps of %d: %d frames, %.40q", body, step, len(got), got)
			}
		}
	}
}
