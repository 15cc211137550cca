package edge_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

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

func (h *house) events(run, query string) (p eventPage) {
	h.t.Helper()
	a := h.do("GET", "/v1/agent/runs/"+run+"/events"+query, "")
	err := json.Unmarshal([]byte(a.body), &p)
	if a.status != 200 || err != nil || p.Events == nil || p.HasMore == nil || (p.NextAfter == nil) == (p.NextBefore == nil) {
		h.t.Fatalf("%s: %d %v %.300s", query, a.status, err, a.body)
	}
	return p
}

// walk collects all pages of a query and says how many there were.
func (h *house) walk(run, query string, desc bool, limit int) (lines []string, pages int) {
	h.t.Helper()
	next := ""
	for {
		p := h.events(run, fmt.Sprintf("?limit=%d%s%s", limit, query, next))
		pages++
		if len(p.Events) > limit {
			h.t.Fatalf("%s: %d events, limit %d", query, len(p.Events), limit)
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
			h.t.Fatalf("%s: no end", query)
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

// TestFilteredPages: whatever is asked for, in whatever order and size of pages, all pages together
// are exactly what the filter shows.
func TestFilteredPages(t *testing.T) {
	h := newHouse(t)
	runs := map[string][]string{}
	for _, s := range []schematest.Scenario{schematest.Named("children"), schematest.Named("parallel-tools"), schematest.Named("hostile"), schematest.Generate(3000, 9)} {
		runs[s.Name] = schematest.Lines(h.fill(s.Name, s, 5))
	}
	for run, lines := range runs {
		for _, f := range []struct {
			query           string
			children, types []string
			nested          bool
		}{
			{"", nil, nil, false}, {"&types=*", nil, nil, false}, {"&types=text.delta", nil, []string{"text.delta"}, false},
			{"&types=tool.*,message.end", nil, []string{"tool.*", "message.end"}, false}, {"&types=custom.nothing", nil, []string{"custom.nothing"}, false},
			{"&child=-", []string{"-"}, nil, false}, {"&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, false},
			{"&nested=true&child=" + schematest.ChildA, []string{schematest.ChildA}, nil, true},
			{"&child=-," + schematest.ChildB + "&types=run.lifecycle&types=text.delta", []string{"-", schematest.ChildB}, []string{"run.lifecycle", "text.delta"}, false},
		} {
			want := filtered(t, lines, f.children, f.types, f.nested)
			for _, limit := range []int{1, 3, 100, 1000} {
				if limit == 1 && len(lines) > 1000 {
					continue
				}
				if got, _ := h.walk(run, f.query, false, limit); !slices.Equal(got, want) {
					t.Fatalf("%s%s, pages of %d: %d events, want %d", run, f.query, limit, len(got), len(want))
				}
				got, _ := h.walk(run, f.query+"&order=desc", true, limit)
				if slices.Reverse(got); !slices.Equal(got, want) {
					t.Fatalf("%s%s downwards, pages of %d: %d events, want %d", run, f.query, limit, len(got), len(want))
				}
			}
		}
	}
}

// TestPageEdges are the numbers at the borders.
func TestPageEdges(t *testing.T) {
	h := newHouse(t)
	h.fill("run", schematest.Generate(50, 1), 7)
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
		p := h.events("run", query)
		name, next := "after", p.NextAfter
		if p.NextBefore != nil {
			name, next = "before", p.NextBefore
		}
		if got := fmt.Sprint(len(p.Events), " ", name, " ", *next, " ", *p.HasMore); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for query, code := range map[string]string{
		"?order=up": "BAD-REQUEST", "?order=desc&order=desc": "BAD-REQUEST", "?order=desc&after=1": "BAD-REQUEST", "?before=5": "BAD-REQUEST", "?order=asc&before=": "BAD-REQUEST",
		"?order=desc&before=0": "BAD-CURSOR", "?order=desc&before=-1": "BAD-CURSOR", "?order=desc&before=x": "BAD-CURSOR", "?order=desc&before=9007199254740992": "BAD-CURSOR",
		"?types=*.delta": "BAD-REQUEST", "?types=a%20b": "BAD-REQUEST", "?types=" + strings.Repeat("x", 101): "BAD-REQUEST", "?child=a.b": "BAD-ID", "?child=*": "BAD-ID",
		"?nested=maybe": "BAD-REQUEST", "?types=" + strings.Repeat("a,b,c,d,", 20): "BAD-REQUEST",
	} {
		h.do("GET", "/v1/agent/runs/run/events"+query, "").expect(t, 400, code)
	}
	if p := h.do("GET", "/v1/agent/runs/run/events?order=desc&before=52", "").expect(t, 409, "CURSOR-AHEAD"); p.LastSeq != 50 {
		t.Errorf("%+v", p)
	}
}

// TestPageLooksAtSoMuch: a filter that shows next to nothing costs a bounded walk, and the pages get
// there all the same.
func TestPageLooksAtSoMuch(t *testing.T) {
	const events, scan = 45_000, 20_000
	h := newHouse(t)
	s := schematest.Generate(events, 4)
	s.Events[10].Type, s.Events[10].Payload = "custom.rare", json.RawMessage(`{}`)
	s.Events[30_000].Type, s.Events[30_000].Payload = "custom.rare", json.RawMessage(`{}`)
	h.fill("long", s, 500)
	last := schema.Seq(events)
	var after []schema.Seq
	for at := schema.Seq(0); at < last; {
		p := h.events("long", "?types=custom.rare&after="+at.String())
		at = *p.NextAfter
		after = append(after, at)
		if *p.HasMore != (at < last) {
			t.Fatalf("at %d: more %v", at, *p.HasMore)
		}
	}
	if !slices.Equal(after, []schema.Seq{scan, 2 * scan, last}) {
		t.Errorf("upwards: %v", after)
	}
	// The two and the run's end.
	if got, pages := h.walk("long", "&types=custom.rare", false, 10); len(got) != 3 || pages != 3 {
		t.Errorf("upwards: %d events in %d pages", len(got), pages)
	}
	if got, pages := h.walk("long", "&types=custom.rare&order=desc", true, 10); len(got) != 3 || pages != 3 {
		t.Errorf("downwards: %d events in %d pages", len(got), pages)
	}
}

// TestPageBytes: a page of large events is cut, upwards and downwards, and loses nothing.
func TestPageBytes(t *testing.T) {
	h := newHouse(t)
	for i := range 20 {
		if a := h.do("POST", "/v1/agent/runs/fat/events", fmt.Sprintf(`{"type":"custom.n","payload":{"n":%d,"text":%q}}`, i, strings.Repeat("x", 400<<10))); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	want, upPages := h.walk("fat", "", false, 1000)
	got, pages := h.walk("fat", "&order=desc", true, 1000)
	if slices.Reverse(got); len(want) != 20 || !slices.Equal(got, want) || pages != 2 || upPages != 2 {
		t.Errorf("%d events in %d pages downwards, %d in %d upwards", len(got), pages, len(want), upPages)
	}
	if a := h.do("GET", "/v1/agent/runs/fat/events?limit=1000&order=desc", ""); len(a.body) > 5<<20 {
		t.Errorf("%d bytes", len(a.body))
	}
}

// TestPagesOfWhatIsKept: upwards the expired beginning is refused; downwards what is kept is given
// first.
func TestPagesOfWhatIsKept(t *testing.T) {
	h := newHouse(t)
	lines := schematest.Lines(h.fill("run", schematest.Generate(3000, 2), 10))
	h.log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 1005)
	first := h.do("GET", "/v1/agent/runs/run/events", "").expect(t, 410, schema.CodeCursorExpired).FirstSeq
	if first < 990 || first > 1010 {
		t.Fatalf("the first that is kept is %d", first)
	}
	for _, limit := range []string{"300", "1000"} {
		for _, filter := range []string{"", "&types=*", "&child=-&types=text.delta,custom.*"} {
			var got []string
			for next := ""; ; {
				a := h.do("GET", "/v1/agent/runs/run/events?order=desc&limit="+limit+filter+next, "")
				if a.status != 200 {
					if p := a.expect(t, 410, schema.CodeCursorExpired); p.FirstSeq != first {
						t.Errorf("%+v", p)
					}
					break
				}
				var p eventPage
				if err := json.Unmarshal([]byte(a.body), &p); err != nil || !*p.HasMore {
					t.Fatalf("%v %s", err, a.body[max(0, len(a.body)-100):])
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
