package dialecttest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/schema"
)

// refusals checks that the body of a refusal is one JSON object on one line, for every reason and whatever it says.
func (s *Suite) refusals(t *testing.T) {
	for _, reason := range append(dialect.Reasons(), dialect.ReasonNone) {
		for _, text := range append(hostileTexts, "bad cursor") {
			p := ends.Problem(reason, nil)
			p.Message, p.Field, p.RequestID = text, "/events/0/a~1b", "req_1"
			p.Line, p.First, p.Last, p.Stored = 3, 4, 5, 6
			const before = `{"before":1}`
			b := s.Dialect.AppendError([]byte(before), p)
			body, ok := bytes.CutPrefix(b, []byte(before))
			if !ok {
				t.Fatalf("%s: what stood before is gone: %s", reason, b)
			}
			object := map[string]any{}
			if err := json.Unmarshal(body, &object); err != nil || len(object) == 0 || bytes.ContainsAny(body, "\n\r") {
				t.Fatalf("%s, %.20q: not a JSON object on one line: %v: %s", reason, text, err, body)
			}
			if s.Refusal == nil {
				continue
			}
			if err := s.Refusal(body, p); err != nil {
				t.Errorf("%s: %v: %s", reason, err, body)
			}
		}
	}
}

// hostileTexts are what clients send in the place of anything.
var hostileTexts = []string{
	"", " ", "\x00", "\xff\xfe", "\u2028", "\ufffd", "0", "-1", "1e309", "9007199254740992",
	"99999999999999999999999999", "true", "null", "{}", "[]", `"`, `\`,
	"../../etc/passwd", "a.b", "*", ">", "a b", "a\nb", "a\r\nSet-Cookie: x", "%00", "%zz", "evt_",
	"evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "𝕏",
	strings.Repeat("x", 300), strings.Repeat("x", 70_000), strings.Repeat("[", 20_000), strings.Repeat(`{"a":`, 20_000),
	strings.Repeat(",", 5000), strings.Repeat("é", 200),
}

// hostile checks that whatever a request says is refused as the client's fault, or read as a request for a valid run.
func (s *Suite) hostile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, in := range s.Inputs {
		in := s.input(in, suiteRun)
		try := func(what string, change func(in *dialect.Input)) {
			changed := cloneInput(in)
			change(&changed)
			s.checkRefusal(t, name+": "+what, changed)
		}
		try("as it is", func(*dialect.Input) {})
		try("nothing", func(in *dialect.Input) { in.Path, in.Query, in.Header, in.Body = nil, nil, nil, nil })
		for _, text := range hostileTexts {
			for key := range in.Path {
				try("path "+key, func(in *dialect.Input) { in.Path[key] = text })
			}
			for _, key := range append(keys(in.Query), "after", "detail", "replay", text) {
				try("query "+key, func(in *dialect.Input) { in.Query[key] = []string{text} })
				try("query twice "+key, func(in *dialect.Input) { in.Query[key] = append(in.Query[key], text, text) })
			}
			for _, key := range append(keys(in.Header), "Last-Event-Id", "Accept", "Detail") {
				try("header "+key, func(in *dialect.Input) { in.Header[key] = []string{text} })
				try("header twice "+key, func(in *dialect.Input) { in.Header[key] = []string{text, text} })
			}
			try("body", func(in *dialect.Input) { in.Body = []byte(text) })
		}
		for i := range in.Body {
			try("cut body", func(in *dialect.Input) { in.Body = in.Body[:i] })
			for range 4 {
				try("changed body", func(in *dialect.Input) { in.Body[i] = byte(rnd.Uint32()) })
			}
		}
	}
}

func keys(m map[string][]string) (list []string) {
	for key := range m {
		list = append(list, key)
	}
	return list
}

// checkRefusal opens a request. A panic fails the test by itself.
func (s *Suite) checkRefusal(t *testing.T, what string, in dialect.Input) {
	t.Helper()
	d := s.Dialect
	req, err := d.Open(in)
	if err != nil {
		reason := ends.ReasonOf(err)
		if status := ends.OutcomeOf(reason).Status; status < 400 || status > 499 {
			t.Errorf("%s: %d: %.200v", what, status, err)
		}
		if body := d.AppendError(nil, ends.Problem(reason, err)); !json.Valid(body) {
			t.Errorf("%s: the refusal is no JSON: %.200s", what, body)
		}
		return
	}
	if err := schema.ValidRunID(req.Run); err != nil {
		t.Errorf("%s: taken as a request for run %.100q", what, req.Run)
	}
	if req.Cursor.Seq < 0 || req.Cursor.Seq > schema.MaxSeq || req.Cursor.Place.Slot < 0 ||
		req.Cursor.Place.Slot > dialect.MaxSlot {
		t.Errorf("%s: taken as the cursor %+v", what, req.Cursor)
	}
	if d.Projector(req) == nil || dialect.KeyOf(req.Select) != dialect.KeyOf(req.Select) {
		t.Errorf("%s: the request has no projector, or a selection without a key", what)
	}
}
