package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/schema"
)

func TestDecodeBatchForms(t *testing.T) {
	one := `{"type":"text.delta","payload":{"text":"a"}}`
	two := `{"type":"text.delta","payload":{"text":"b"},"child_id":"run_c"}`
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"object":                  {one, 1},
		"object and feed":         {one + "\n", 1},
		"ndjson":                  {one + "\n" + two + "\n", 2},
		"ndjson unterminated":     {one + "\n" + two, 2},
		"ndjson crlf":             {one + "\r\n" + two + "\r\n", 2},
		"ndjson blank lines":      {"\n\n" + one + "\n\r\n\n" + two + "\n\n", 2},
		"ndjson indented":         {"  " + one + "  \n\t" + two + " ", 2},
		"array":                   {"[" + one + "," + two + "]", 2},
		"array spaced":            {" \n[\n " + one + "\n ,\r\n\t" + two + "\n]\n ", 2},
		"object on several lines": {"{\n  \"type\": \"text.delta\",\n  \"payload\": {\n    \"text\": \"a\"\n  }\n}\n", 1},
		"array of printed":        {"[{\n\"type\":\"text.delta\",\"payload\":{\n\"text\":\"a\"}},\n" + two + "]", 2},
	} {
		events, err := schema.DecodeBatch(testRun, []byte(tt.body))
		if err != nil || len(events) != tt.want {
			t.Errorf("%s: %d events, %v", name, len(events), err)
			continue
		}
		if got := string(events[0].Payload); got != `{"text":"a"}` {
			t.Errorf("%s: payload %s", name, got)
		}
		if tt.want == 2 && (events[1].ChildID != "run_c" || string(events[1].Payload) != `{"text":"b"}`) {
			t.Errorf("%s: second %+v", name, events[1])
		}
	}
}

// TestDecodeBatchCopies: events must not change when the request's buffer is used again.
func TestDecodeBatchCopies(t *testing.T) {
	body := []byte(`{"type":"text.delta","x":"kept","payload":{"text":"kept"}}`)
	events, err := schema.DecodeBatch(testRun, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = '!'
	}
	if e := events[0]; string(e.Payload) != `{"text":"kept"}` || string(e.Extra) != `"x":"kept"` ||
		e.Type != "text.delta" {
		t.Errorf("%+v", e)
	}
}

func TestDecodeBatchRefuses(t *testing.T) {
	ok := `{"type":"text.delta","payload":{"text":"a"}}`
	event := func(fields string) string { return `{"type":"custom.x","payload":{},` + fields + `}` }
	for name, tt := range map[string]struct {
		body string
		line int
		err  error
		code string
	}{
		"empty":            {"", 1, schema.ErrMalformed, ""},
		"blank":            {"\n\r\n", 1, schema.ErrMalformed, ""},
		"empty array":      {"[ ]", 1, schema.ErrMalformed, ""},
		"null":             {"null", 1, schema.ErrMalformed, ""},
		"number":           {ok + "\n7", 2, schema.ErrMalformed, ""},
		"array of number":  {"[" + ok + ",7]", 2, schema.ErrMalformed, ""},
		"nested array":     {"[[" + ok + "]]", 1, schema.ErrMalformed, ""},
		"array open":       {"[" + ok, 1, schema.ErrMalformed, ""},
		"array comma":      {"[" + ok + ",]", 1, schema.ErrMalformed, ""},
		"array tail":       {"[" + ok + "]x", 1, schema.ErrMalformed, ""},
		"third line":       {ok + "\n\n{\n" + ok, 3, schema.ErrMalformed, ""},
		"two on a line":    {ok + ok, 1, schema.ErrMalformed, ""},
		"cut":              {ok + "\n" + ok[:20], 2, schema.ErrMalformed, ""},
		"invalid utf-8":    {ok + "\n{\"type\":\"text.delta\",\"payload\":{\"text\":\"\xc3\"}}", 2, schema.ErrMalformed, ""},
		"utf-16":           {"\xff\xfe{\x00}\x00", 1, schema.ErrMalformed, ""},
		"bom":              {"\xef\xbb\xbf" + ok, 1, schema.ErrMalformed, ""},
		"raw NUL":          {"{\"type\":\"text.delta\",\"payload\":{\"text\":\"\x00\"}}", 1, schema.ErrMalformed, ""},
		"NUL after":        {ok + "\x00", 1, schema.ErrMalformed, ""},
		"raw control":      {"{\"type\":\"text.delta\",\"payload\":{\"text\":\"\x1b\"}}", 1, schema.ErrMalformed, ""},
		"duplicate key":    {event(`"type":"text.delta"`), 1, schema.ErrMalformed, ""},
		"duplicate extra":  {event(`"a":1,"\u0061":2`), 1, schema.ErrMalformed, ""},
		"deep":             {event(`"x":` + strings.Repeat("[", 128) + strings.Repeat("]", 128)), 1, schema.ErrMalformed, ""},
		"very deep":        {strings.Repeat("[", 100000), 1, schema.ErrMalformed, ""},
		"payload list":     {`{"type":"custom.x","payload":[]}`, 1, schema.ErrMalformed, ""},
		"payload text":     {`{"type":"custom.x","payload":"{}"}`, 1, schema.ErrMalformed, ""},
		"payload null":     {`{"type":"custom.x","payload":null}`, 1, schema.ErrMalformed, ""},
		"no payload":       {`{"type":"text.delta"}`, 1, schema.ErrMalformed, ""},
		"no text":          {`{"type":"text.delta","payload":{"Text":"a"}}`, 1, schema.ErrMalformed, ""},
		"text number":      {`{"type":"text.delta","payload":{"text":7}}`, 1, schema.ErrMalformed, ""},
		"text last wins":   {`{"type":"text.delta","payload":{"text":"a","text":null}}`, 1, schema.ErrMalformed, ""},
		"tool text":        {`{"type":"tool.input.delta","payload":{"call_id":"c"}}`, 1, schema.ErrMalformed, ""},
		"no state":         {`{"type":"run.lifecycle","payload":{}}`, 1, schema.ErrMalformed, ""},
		"state unknown":    {`{"type":"run.lifecycle","payload":{"state":"finished"}}`, 1, schema.ErrMalformed, ""},
		"state in capital": {`{"type":"run.lifecycle","payload":{"State":"done"}}`, 1, schema.ErrMalformed, ""},
		"first_seq":        {event(`"first_seq":1`), 1, schema.ErrMalformed, ""},
		"own child":        {event(`"child_id":"` + testRun + `"`), 1, schema.ErrMalformed, ""},
		"seq zero":         {event(`"seq":0`), 1, schema.ErrMalformed, ""},
		"ts":               {event(`"ts":"now"`), 1, schema.ErrMalformed, ""},
		"id":               {event(`"id":"a\r\nb"`), 1, schema.ErrBadID, ""},
		"child wild":       {event(`"child_id":">"`), 1, schema.ErrBadID, ""},
		"child root lane":  {event(`"child_id":"-"`), 1, schema.ErrBadID, ""},
		"foreign run":      {ok + "\n" + event(`"run_id":"run_other"`), 2, schema.ErrForeignRun, ""},
		"run hostile":      {event(`"run_id":"a.>"`), 1, schema.ErrBadID, ""},
		"no type":          {`{"payload":{}}`, 1, schema.ErrUnknownType, schema.CodeUnknownType},
		"unknown type": {ok + "\n" + `{"type":"text.deltas","payload":{}}`, 2, schema.ErrUnknownType,
			schema.CodeUnknownType},
		"type in capital": {`{"type":"Text.Delta","payload":{"text":"a"}}`, 1, schema.ErrUnknownType,
			schema.CodeUnknownType},
		"too large": {ok + "\n" + `{"type":"custom.x","payload":{"x":"` +
			strings.Repeat("x", schema.MaxEventBytes) + `"}}`, 2, schema.ErrTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := schema.DecodeBatch(testRun, []byte(tt.body))
			var at *schema.BatchError
			if !errors.As(err, &at) || !errors.Is(err, tt.err) || events != nil {
				t.Fatalf("%d events, %v", len(events), err)
			}
			if at.Line != tt.line || !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: ", tt.line)) {
				t.Errorf("line %d: %v", at.Line, err)
			}
			if strings.ContainsAny(err.Error(), "\x00\r\x1b") {
				t.Errorf("the error carries control characters: %q", err)
			}
			if want := max(tt.code, ""); want == "" && schema.Code(err) != schema.CodeMalformed || want != "" &&
				schema.Code(err) != want {
				t.Errorf("code %s", schema.Code(err))
			}
		})
	}
}

// TestOwnRunAndNumbers: what a producer may bring besides type and payload.
func TestOwnRunAndNumbers(t *testing.T) {
	body := `{"id":"my-id_1","ts":"2026-01-02T03:04:05Z","type":"progress","run_id":"` + testRun +
		`","child_id":null,"seq":12,"payload":{}}` +
		"\n" + `{"type":"command.cancel"}`
	events, err := schema.DecodeBatch(testRun, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if e := events[0]; e.ID != "my-id_1" || e.Seq != 12 || e.RunID != testRun || e.TS != "2026-01-02T03:04:05Z" {
		t.Errorf("%+v", e)
	}
	if string(events[1].Payload) != "{}" {
		t.Errorf("absent payload is %s", events[1].Payload)
	}
}

// TestCheckNewOfMadeEvents: events that were never JSON are held to the same form, so that no line
// enters the log that its readers refuse, and Size bounds what is written.
func TestCheckNewOfMadeEvents(t *testing.T) {
	long := strings.Repeat("\x01", 256)
	e := schema.Event{Type: "custom.x", RunID: testRun, TurnID: long, Cause: long, Actor: long, Payload: []byte("{}")}
	for range 32 {
		e.Path = append(e.Path, strings.Repeat("p", schema.MaxRunID))
	}
	if err := e.CheckNew(testRun); err != nil {
		t.Fatal(err)
	}
	e.ID, e.TS, e.Seq = strings.Repeat("i", schema.MaxEventID), "2026-01-02T03:04:05.678Z", schema.MaxSeq
	e.ChildID = strings.Repeat("c", schema.MaxRunID)
	line := e.AppendLine(nil)
	if len(line) > e.Size() {
		t.Errorf("%d bytes, Size says %d", len(line), e.Size())
	}
	if _, err := schema.DecodeLine(line); err != nil {
		t.Errorf("the log would hold a line that readers refuse: %v", err)
	}
	for name, change := range map[string]func(*schema.Event){
		"turn":      func(e *schema.Event) { e.TurnID += "x" },
		"cause":     func(e *schema.Event) { e.Cause += "x" },
		"actor":     func(e *schema.Event) { e.Actor += "x" },
		"path":      func(e *schema.Event) { e.Path = append(e.Path, "p") },
		"path id":   func(e *schema.Event) { e.Path = []string{"a.b"} },
		"first_seq": func(e *schema.Event) { e.FirstSeq = 1 },
		"child":     func(e *schema.Event) { e.ChildID = "a b" },
		"payload":   func(e *schema.Event) { e.Payload = []byte("[]") },
		"type":      func(e *schema.Event) { e.Type = "nothing" },
		"size":      func(e *schema.Event) { e.Extra = []byte(`"x":"` + strings.Repeat("x", schema.MaxEventBytes) + `"`) },
	} {
		bad := e
		change(&bad)
		if bad.CheckNew(testRun) == nil {
			t.Errorf("%s passes", name)
		}
	}
}
