package rest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/edge/shape"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// eventPage is the answer of GET …/events.
type eventPage struct {
	Events     []json.RawMessage `json:"events"`
	NextAfter  *schema.Seq       `json:"next_after"`
	NextBefore *schema.Seq       `json:"next_before"`
	HasMore    *bool             `json:"has_more"`
}

func listEvents(h *edgetest.House, run, query string) (p eventPage) {
	h.T.Helper()
	a := h.Do("GET", "/v1/agent/runs/"+run+"/events"+query, "")
	err := json.Unmarshal([]byte(a.Body), &p)
	if a.Status != 200 || err != nil || p.Events == nil || p.HasMore == nil ||
		(p.NextAfter == nil) == (p.NextBefore == nil) {
		h.T.Fatalf("%s: %d %v %.300s", query, a.Status, err, a.Body)
	}
	return p
}

// walk collects all pages of a query and says how many there were.
func walk(h *edgetest.House, run, query string, desc bool, limit int) (lines []string, pages int) {
	h.T.Helper()
	next := ""
	for {
		p := listEvents(h, run, fmt.Sprintf("?limit=%d%s%s", limit, query, next))
		pages++
		if len(p.Events) > limit {
			h.T.Fatalf("%s: %d events, limit %d", query, len(p.Events), limit)
		}
		for _, e := range p.Events {
			lines = append(lines, string(e))
		}
		if !*p.HasMore {
			return lines, pages
		}
		if desc {
			next = "&before=" + p.NextBefore.String()
		} else {
			next = "&after=" + p.NextAfter.String()
		}
		if pages > 10_000 {
			h.T.Fatalf("%s: no end", query)
		}
	}
}

// filtered returns the lines that a filter shows.
func filtered(t *testing.T, lines, children, types []string, nested bool) (out []string) {
	t.Helper()
	f := shape.NewFilter(children, types, nested)
	for _, line := range lines {
		r, err := schema.ScanLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if f.Match(r) {
			out = append(out, line)
		}
	}
	return out
}

// TestPageEdges are the numbers at the borders.
func TestPageEdges(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.Generate(50, 1), 7)
	for query, want := range map[string]string{
		"?order=asc&after=50":                     "0 after 50 false",
		"?order=desc&before=1":                    "0 before 1 false",
		"?order=desc&before=2":                    "1 before 1 false",
		"?order=desc&before=51&limit=3":           "3 before 48 true",
		"?order=desc&limit=50":                    "50 before 1 false",
		"?order=desc&limit=49":                    "49 before 2 true",
		"?types=custom.none&limit=1":              "1 after 50 false", // the end passes every filter
		"?types=custom.none&after=49":             "1 after 50 false",
		"?types=custom.none&limit=1&order=desc":   "1 before 1 false",
		"?types=custom.none&before=50&order=desc": "0 before 1 false",
		"?child=nobody&order=desc&before=20":      "0 before 1 false",
		"?order=desc&before=51&limit=50&child=-":  "50 before 1 false",
	} {
		p := listEvents(h, "run", query)
		name, next := "after", p.NextAfter
		if p.NextBefore != nil {
			name, next = "before", p.NextBefore
		}
		if got := fmt.Sprint(len(p.Events), " ", name, " ", *next, " ", *p.HasMore); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for query, code := range map[string]string{
		"?order=up": "BAD-REQUEST", "?order=desc&order=desc": "BAD-REQUEST", "?order=desc&after=1": "BAD-REQUEST",
		"?before=5": "BAD-REQUEST", "?order=asc&before=": "BAD-REQUEST",
		"?order=desc&before=0": "BAD-CURSOR", "?order=desc&before=-1": "BAD-CURSOR",
		"?order=desc&before=x": "BAD-CURSOR", "?order=desc&before=9007199254740992": "BAD-CURSOR",
		"?types=*.delta": "BAD-REQUEST", "?types=a%20b": "BAD-REQUEST",
		"?types=" + strings.Repeat("x", 101): "BAD-REQUEST", "?child=a.b": "BAD-ID", "?child=*": "BAD-ID",
		"?nested=maybe": "BAD-REQUEST", "?types=" + strings.Repeat("a,b,c,d,", 20): "BAD-REQUEST",
	} {
		h.Do("GET", "/v1/agent/runs/run/events"+query, "").Expect(t, 400, code)
	}
	if p := h.Do("GET", "/v1/agent/runs/run/events?order=desc&before=52", "").Expect(t, 409,
		"CURSOR-AHEAD"); p.LastSeq != 50 {
		t.Errorf("%+v", p)
	}
}

// TestPagesOfWhatIsKept: upwards the expired beginning is refused; downwards what is kept is given
// first.
func TestPagesOfWhatIsKept(t *testing.T) {
	h := edgetest.NewHouse(t)
	lines := schematest.Lines(h.Fill("run", schematest.Generate(3000, 2), 10))
	h.Log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 1005)
	first := h.Do("GET", "/v1/agent/runs/run/events", "").Expect(t, 410, schema.CodeCursorExpired).FirstSeq
	if first < 990 || first > 1010 {
		t.Fatalf("the first that is kept is %d", first)
	}
	for _, limit := range []string{"300", "1000"} {
		for _, filter := range []string{"", "&types=*", "&child=-&types=text.delta,custom.*"} {
			var got []string
			for next := ""; ; {
				a := h.Do("GET", "/v1/agent/runs/run/events?order=desc&limit="+limit+filter+next, "")
				if a.Status != 200 {
					if p := a.Expect(t, 410, schema.CodeCursorExpired); p.FirstSeq != first {
						t.Errorf("%+v", p)
					}
					break
				}
				var p eventPage
				if err := json.Unmarshal([]byte(a.Body), &p); err != nil || !*p.HasMore {
					t.Fatalf("%v %s", err, a.Body[max(0, len(a.Body)-100):])
				}
				for _, e := range p.Events {
					got = append(got, string(e))
				}
				next = "&before=" + p.NextBefore.String()
			}
			slices.Reverse(got)
			want := lines[first-1:]
			if strings.Contains(filter, "child") {
				want = filtered(t, want, []string{"-"}, []string{"text.delta", "custom.*"}, false)
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %s%s: %d events, want %d", limit, filter, len(got), len(want))
			}
		}
	}
}
