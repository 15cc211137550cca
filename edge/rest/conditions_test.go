package rest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/internal/testkit"
)

func TestConditions(t *testing.T) {
	h := edgetest.NewHouse(t)
	const path = "/v1/agent/runs/run/events"
	post := func(headers ...string) edgetest.Reply { return h.Do("POST", path, edgetest.GoodLine, headers...) }
	unmet := func(last int, headers ...string) {
		t.Helper()
		before := h.Last("run")
		a := post(headers...)
		if p := a.Expect(t, 412, "PRECONDITION-FAILED"); p.LastSeq != last || a.Header.Get("Etag") != "" ||
			h.Last("run") != before ||
			!strings.Contains(p.Message, fmt.Sprintf("newest event is %d", last)) || strings.Contains(p.Message, "producers") {
			t.Errorf("%q: %+v", headers, p)
		}
	}
	met := func(last int, headers ...string) {
		t.Helper()
		if a := post(headers...); a.Status != 200 || a.Header.Get("Etag") != fmt.Sprintf("%q", fmt.Sprint(last)) {
			t.Errorf("%q: %d %v %s", headers, a.Status, a.Header, a.Body)
		}
	}
	unmet(0, "If-Match", "*")
	unmet(0, "If-Match", `"1"`)
	met(1, "If-Match", `"0"`)
	unmet(1, "If-None-Match", "*")
	unmet(1, "If-Match", `"0"`)
	met(2, "If-Match", "*")
	met(3, "If-Match", `"2"`)
	unmet(3, "If-Match", `"2"`)
	met(4, "If-Match", `"7" , "3"`)
	met(5, "If-Match", `"7"`, "If-Match", `"4"`)
	met(6)
	for _, bad := range [][]string{
		{"If-Match", ""}, {"If-Match", "6"}, {"If-Match", `W/"6"`}, {"If-Match", `"06"`}, {"If-Match", `"-6"`},
		{"If-Match", `"+6"`}, {"If-Match", `"6`},
		{"If-Match", `""`}, {"If-Match", `"x"`}, {"If-Match", `"6",`}, {"If-Match", `*, "6"`},
		{"If-Match", `"99999999999999999999"`},
		{"If-Match", strings.Repeat(`"6",`, 17) + `"6"`}, {"If-None-Match", `"6"`}, {"If-None-Match", ""},
		{"If-None-Match", "*", "If-None-Match", "*"},
		{"If-Match", `"6"`, "If-None-Match", "*"}, {"Agentstream-Atomic", ""}, {"Agentstream-Atomic", "yes"},
		{"Agentstream-Atomic", "true", "Agentstream-Atomic", "true"},
	} {
		post(bad...).Expect(t, 400, "BAD-REQUEST")
	}
	if a := h.Do("POST", "/v1/agent/runs/new/events", edgetest.GoodLine, "If-None-Match", "*"); a.Status != 200 ||
		h.Last("run") != 6 {
		t.Errorf("%d, newest %d", a.Status, h.Last("run"))
	}
	// Numbers that events bring are looked at behind the condition.
	numbered := func(seq int) string { return fmt.Sprintf(`{"type":"progress","seq":%d}`, seq) }
	h.Do("POST", path, numbered(8), "If-Match", `"6"`).Expect(t, 409, "SEQ-MISMATCH")
	h.Do("POST", path, numbered(7), "If-Match", `"5"`).Expect(t, 412, "PRECONDITION-FAILED")
	if a := h.Do("POST", path, numbered(7), "If-Match", `"6"`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A command under a condition is given only to the very state that its sender has seen.
func TestConditionsOfCommands(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("run", edgetest.Lifecycle("running"))
	const path = "/v1/agent/runs/run/pause"
	p := h.Do("POST", path, "", "If-Match", `"7"`).Expect(t, 412, "PRECONDITION-FAILED")
	if p.LastSeq != 1 || h.Last("run") != 1 {
		t.Errorf("%+v, newest %d", p, h.Last("run"))
	}
	h.Do("POST", "/v1/agent/runs/none/pause", "", "If-Match", `"0"`).Expect(t, 404, "NOT-FOUND")
	if a := h.Do("POST", path, "", "If-Match", `"1"`); a.Status != 202 || a.Header.Get("Etag") != `"2"` {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	h.Do("POST", path, "", "If-Match", `"2"`).Expect(t, 409, "STATE-FORBIDS")
}

// Eight callers that number themselves, at two nodes that remember heads, and one that does not: what each has
// seen is what its event follows, or it is told where the run is.
func TestConditionsDecideAtTheLog(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*edgetest.House{nodeOn(t, k, nil), nodeOn(t, k, nil)}
	const callers, each = 8, 12
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			h, seen := nodes[c%2], 0
			for n := 0; n < each; {
				a := h.Do("POST", "/v1/agent/runs/run/events",
					fmt.Sprintf(`{"type":"text.delta","payload":{"text":"%d after %d"}}`, c, seen), "If-Match",
					fmt.Sprintf("%q", fmt.Sprint(seen)))
				switch a.Status {
				case 200:
					n, seen = n+1, seen+1
				case 412:
					seen = a.Problem(t).LastSeq
				default:
					t.Errorf("%d %s", a.Status, a.Body)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range each {
			nodes[0].Do("POST", "/v1/agent/runs/run/events", `{"type":"text.delta","payload":{"text":"free"}}`)
		}
	})
	wg.Wait()
	texts := storedTexts(nodes[1], "run")
	if len(texts) != (callers+1)*each {
		t.Fatalf("%d texts", len(texts))
	}
	for i, s := range texts {
		if _, after, told := strings.Cut(s, " after "); told && after != fmt.Sprint(i) {
			t.Errorf("event %d: %s", i+1, s)
		}
	}
}
