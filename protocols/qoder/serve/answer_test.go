package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/schema"
)

// TestAnswerTwice holds that what waits for the client is answered once, in one request or in several: a second
// answer could say something else, and the agent may have acted on the first.
func TestAnswerTwice(t *testing.T) {
	const confirm, result, custom = `{"type":"user.tool_confirmation","tool_use_id":"USE","result":"%s"}`,
		`{"type":"user.tool_result","tool_use_id":"USE","content":[{"type":"text","text":"%s"}]}`,
		`{"type":"user.custom_tool_result","custom_tool_use_id":"USE","content":[{"type":"text","text":"%s"}]}`
	allow, deny := fmt.Sprintf(confirm, "allow"), fmt.Sprintf(confirm, "deny")
	ask := event(schema.TypeToolStart, `{"call_id":"c","tool":"rm","input":{},"permission":"ask"}`)
	own := event(schema.TypeToolStart, `{"call_id":"c","tool":"mine","input":{},"custom":true}`)
	plain := event(schema.TypeToolStart, `{"call_id":"c","tool":"ls","input":{}}`)
	for name, tt := range map[string]struct {
		use           schema.Event
		first, second string
		taken         bool // the second is no second answer
	}{
		"two verdicts":       {ask, allow, deny, false},
		"the same verdict":   {ask, allow, allow, false},
		"a late verdict":     {plain, deny, allow, false},
		"two results":        {plain, fmt.Sprintf(result, "1"), fmt.Sprintf(result, "2"), false},
		"two custom results": {own, fmt.Sprintf(custom, "1"), fmt.Sprintf(custom, "2"), false},
		"verdict and result": {ask, allow, fmt.Sprintf(result, "1"), true},
		"result and verdict": {ask, fmt.Sprintf(result, "1"), allow, false},
		"two ways to answer": {ask, deny, fmt.Sprintf(custom, "1"), false},
	} {
		h := newHouse(t, false)
		session := func() (id, first, second string) {
			id = h.create(plainBody)
			h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`), tt.use)
			use := ""
			for _, f := range h.frames(id, "") {
				if strings.HasSuffix(f.typ, "tool_use") {
					use = f.id
				}
			}
			return id, strings.ReplaceAll(tt.first, "USE", use), strings.ReplaceAll(tt.second, "USE", use)
		}
		id, first, second := session()
		a := h.do("POST", eventsPath(id, ""), `{"events":[`+first+`,`+second+`]}`)
		want := map[bool]int{true: 2, false: 0}[tt.taken]
		if n := count(h.types(id), "command.answer"); n != want || (a.Status == 200) != tt.taken || a.Status >= 500 {
			t.Errorf("%s, together: %d answers are stored, %d %s", name, n, a.Status, a.Body)
		}
		id, first, second = session()
		one := h.do("POST", eventsPath(id, ""), `{"events":[`+first+`]}`, "Idempotency-Key", "k")
		one.OK(200)
		a = h.do("POST", eventsPath(id, ""), `{"events":[`+second+`]}`)
		want = map[bool]int{true: 2, false: 1}[tt.taken]
		if n := count(h.types(id), "command.answer"); n != want || (a.Status == 200) != tt.taken || a.Status >= 500 {
			t.Errorf("%s, one by one: %d answers are stored, %d %s", name, n, a.Status, a.Body)
		}
		if again := h.do("POST", eventsPath(id, ""), `{"events":[`+first+`]}`, "Idempotency-Key",
			"k"); again.Body != one.Body {
			t.Errorf("%s: a repeat answers %d %s", name, again.Status, again.Body)
		}
	}
}
