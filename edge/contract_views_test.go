package edge_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var long = strings.Repeat("x", 2049)

// wrong has for every parameter of the contract a value that it does not allow.
var wrong = map[string]string{
	"run": "a.b", "after": "x", "before": "x", "through": "x", "at": "x", "order": "up", "limit": "0", "child": "a.b",
	"nested": "perhaps", "types": "a b",
	"state": "asleep", "since": "monday", "until": "monday", "waits": "perhaps", "cursor": "!", "Last-Event-ID": "x",
	"last_event_id": "x", "detail": "half", "Detail": "half",
	"snapshot": "perhaps", "bundle": "perhaps", "speed": "0", "Idempotency-Key": "\x80", "If-Match": "41",
	"If-None-Match": `"0"`,
	"by":            "month", "q": long, "title": long, "tag": long, "agent": long, "model": long, "reason": long,
	"direction":             "up",
	"Agentstream-Run-Title": "100%", "Agentstream-Run-Tags": "a%", "Agentstream-Run-Metadata": "team%",
	"Agentstream-Atomic": "perhaps", "Agentstream-Lease": "a b", "event": "id", "ttl": "long", "from_step": "x",
	"profile": "koder-2", "Content-Encoding": "br", "ticket": "tkt_x",
}

// harmless parameters are passed over when they are wrong.
var harmless = map[string]bool{"X-Request-Id": true, "Accept-Encoding": true}

// TestContractParameters: every parameter that the contract tells of an operation is read by it: with
// a value that is not allowed the request is refused.
func TestContractParameters(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house()
	h.store("ended", schematest.ByName("plain"), 5)
	n := 0
	for _, rt := range rows(t) {
		op := k.c.operation(rt.Method, rt.Path)
		if !strings.HasPrefix(rt.Path, edgetest.RunsPath) && rt.Path != costsPath {
			continue
		}
		for _, ref := range op.Parameters {
			p := ref.Value
			if harmless[p.Name] || p.Name == "ref" { // TestBlobRefused has wrong ones
				continue
			}
			bad, ok := wrong[p.Name]
			if !ok {
				t.Errorf("%s: no wrong value for %s", rt.Pattern, p.Name)
				continue
			}
			run, query := "ended", ""
			body, headers := asks(rt, "ended")
			switch p.In {
			case "path":
				run = bad
			case "query":
				query = "?" + p.Name + "=" + url.QueryEscape(bad)
			case "header":
				headers = append(headers, p.Name, bad)
			}
			a := h.ask(rt.Method, rt.Path, run, query, body, headers...)
			if want := cmp.Or(map[string]int{"ticket": 401, "Content-Encoding": 415}[p.Name], 400); a.Status != want {
				t.Errorf("%s: %s %q: %d %s", rt.Pattern, p.Name, bad, a.Status, a.Body)
			}
			if a.Status == 400 {
				checkWords(t, rt.Pattern, p.Name, bad, a.Body)
			}
			if err := k.c.fits(strings.TrimPrefix(ref.Ref, "#")+"/schema", valueOf(p.Schema.Value, bad)); err == nil {
				t.Errorf("%s: the contract allows %s %q", rt.Pattern, p.Name, bad)
			}
			n++
		}
	}
	if n < 55 {
		t.Errorf("%d parameters", n)
	}
}

// checkWords holds that a refusal is one sentence that names the parameter, what it must be, and the beginning of what
// was given, and that it says nothing twice.
func checkWords(t *testing.T, route, name, given, body string) {
	t.Helper()
	var refused struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal([]byte(body), &refused); err != nil {
		t.Fatal(err)
	}
	said := refused.Error.Message
	quoted := fmt.Sprintf("%q", given[:min(len(given), 40)])
	for what, part := range map[string]string{"the parameter": name, "what it must be": "must ",
		"what was given": quoted} {
		if !strings.Contains(strings.ToLower(said), strings.ToLower(part)) {
			t.Errorf("%s: %s of %s is not said: %s", route, what, name, said)
		}
	}
	if len(said) > 300 || strings.Contains(said, "bad request") || strings.Contains(said, "is not a sequence number") {
		t.Errorf("%s: it is said of %s more than once: %s", route, name, said)
	}
}

// valueOf returns the text of a parameter as its schema has it.
func valueOf(s *openapi3.Schema, text string) any {
	var v any
	if s.Type.Is("array") {
		return []any{text}
	}
	if (s.Type.Is("integer") || s.Type.Is("number") || s.Type.Is("boolean")) && json.Unmarshal([]byte(text), &v) == nil {
		return v
	}
	return text
}

// TestContractBodies: what the contract allows in a body the server takes, and what it does not allow
// the server refuses. Examples are such bodies too.
func TestContractBodies(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	h := k.house()
	type body struct{ path, text string }
	list := []body{}
	for path, item := range k.c.doc.Paths.Map() {
		if item.Post == nil || item.Post.RequestBody == nil {
			continue
		}
		if media := item.Post.RequestBody.Value.Content["application/json"]; media != nil {
			b, err := json.Marshal(media.Example)
			if err != nil || media.Example == nil {
				t.Errorf("%s: no example, %v", path, err)
			}
			list = append(list, body{path, string(b)})
		}
	}
	for _, text := range []string{
		`{"type":"progress"}`, `{}`, `[]`, `7`, `{"payload":{}}`, `{"type":"progress","first_seq":1}`,
		`{"type":"progress","first_seq":null,"seq":null,"id":null,"ts":null,"child_id":null}`,
		`{"type":"progress","child_id":"-"}`, `{"type":"progress","child_id":"kid","path":["r","kid"],"turn_id":"t","own":{}}`, `{"type":"progress","path":["a b"]}`,
		`{"type":"progress","ts":"monday"}`, `{"type":"progress","ts":"2026-01-02T03:04:05+01:00"}`,
		`{"type":"progress","id":"a b"}`, `{"type":"progress","payload":[]}`,
		`{"type":"progress","payload":null}`, `{"type":"a b"}`, `{"type":7}`, `{"type":"progress","run_id":"a.b"}`,
		`{"type":"progress","seq":"1"}`, `{"type":"progress","seq":0.5}`,
		`{"type":"progress","actor":7}`, `{"type":"progress","cause":"` + strings.Repeat("x", 300) + `"}`,
		`[{"type":"progress"},{"type":"progress"}]`, `[{"type":"progress"},7]`,
	} {
		list = append(list, body{edgetest.RunsPath + "/{run}/events", text})
	}
	for _, text := range []string{`{"run_id":"a.b"}`, `{"run_id":null,"planning_gate":null}`,
		`{"planning_gate":"preview"}`, `{"planning_gate":"open"}`, `{"run_id":7}`, `{"own":1}`, `[]`} {
		list = append(list, body{edgetest.RunsPath, text})
	}
	for name := range edgetest.Bodies {
		for _, text := range []string{
			`{}`, `[]`, `{"child_id":null}`, `{"child_id":7}`, `{"child_id":"a.b"}`, `{"reason":7}`, `{"reason":null}`,
			`{"instruction":7}`, `{"plan_id":""}`, `{"plan_id":null}`,
			`{"request_id":""}`, `{"request_id":"q1"}`, `{"content":7}`, `{"content":[{"type":"text"}]}`,
			`{"content":"x","message_id":7}`, `{"own":[]}`,
		} {
			list = append(list, body{edgetest.RunsPath + "/{run}/" + name, text})
		}
	}
	verdicts := map[bool]int{}
	for i, b := range list {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(b.text))
		if err != nil {
			t.Fatal(err)
		}
		told := k.c.fits(pointerTo("paths", b.path, "post", "requestBody", "content", "application/json", "schema"), value)
		run := fmt.Sprintf("run_%d", i)
		if _, name, ok := strings.Cut(b.path, "{run}/"); ok && name != "events" {
			h.Tell(run, edgetest.Lifecycle("running"))
		}
		a := h.ask("POST", b.path, run, "", b.text, "Content-Type", "application/json")
		if taken := a.Status != 400; taken != (told == nil) {
			t.Errorf("%s %s: %d %s; the contract says %v", b.path, b.text, a.Status, a.Body, told)
		}
		verdicts[told == nil]++
	}
	if verdicts[true] < 40 || verdicts[false] < 40 {
		t.Errorf("%v", verdicts)
	}
}

// begun watches a stream that begins with a snapshot.
func (s *spoken) begun(run string, see func(name, line string)) {
	s.T.Helper()
	r := s.Watch(http.DefaultClient, "/v1/agent/runs/"+run+"/stream?snapshot=true")
	defer r.Resp.Body.Close()
	f := edgetest.FrameReader{T: s.T, R: bufio.NewReader(r.B)}
	first, ok := f.Next()
	if !ok || first.Type != "run.snapshot" {
		s.T.Fatalf("%s begins with %.200s", run, first.Line)
	}
	see(run+" snapshot", first.Line)
}

// TestLastWordKeepsTheContract: when its credential ends, a stream says so in the words of a refusal.
func TestLastWordKeepsTheContract(t *testing.T) {
	k := &talk{t: t, c: readContract(t)}
	var begun atomic.Bool // a credential that has ended before the first byte is refused instead
	h := k.house(func(c *edge.Config) {
		c.Still = func(auth.Caller) error {
			if !begun.Load() {
				return nil
			}
			return auth.ErrUnauthorized
		}
		c.Recheck = 1e6
	})
	h.store("open", schematest.Scenario{Events: schematest.ByName("plain").Events[:5]}, 2)
	r := h.Watch(h.Client, "/v1/agent/runs/open/stream")
	last := ""
	for {
		text, err := r.Next()
		if err != nil {
			break
		}
		last = text
		begun.Store(true)
	}
	data, ok := strings.CutPrefix(last, "event: stream.error\ndata: ")
	var value any
	if err := json.Unmarshal([]byte(data), &value); err != nil || !ok || strings.Contains(last, "\nid:") {
		t.Fatalf("%q %v", last, err)
	}
	if err := k.c.fits(pointerTo("components", "responses", "CredentialEnded", "content", "application/json", "schema"),
		value); err != nil {
		t.Errorf("%s: %v", data, err)
	}
}

// TestDeltasAreNotHeldToTheirSchema pins what schema/contracts/README.md says of it: control events that
// are stored fit their JSON Schema; of deltas with a text only that is sure.
func TestDeltasAreNotHeldToTheirSchema(t *testing.T) {
	c := readContract(t)
	h := edgetest.NewHouse(t)
	for i, tt := range []struct {
		typ, payload string
		taken, fits  bool
	}{
		{schema.TypeTextDelta, `{"text":"x","index":0}`, true, true},
		{schema.TypeTextDelta, `{"text":"x","index":-1}`, true, false},
		{schema.TypeToolOutputDelta, `{"text":"x","call_id":"c"}`, true, true},
		{schema.TypeToolOutputDelta, `{"text":"x"}`, true, false},
		{schema.TypeDataDelta, `{"data":"AA==","media_type":"audio/pcm"}`, true, true},
		{schema.TypeDataDelta, `{}`, false, false},
		{schema.TypeReasoningDelta, `{"text":7}`, false, false}, {schema.TypeToolInputDelta, `{"call_id":"c"}`, false, false},
		{schema.TypeToolEnd, `{"call_id":"c","ok":true}`, true, true},
		{schema.TypeToolEnd, `{"call_id":"c","ok":"yes"}`, false, false},
	} {
		run := fmt.Sprintf("run_%d", i)
		a := h.Do("POST", "/v1/agent/runs/"+run+"/events", `{"type":"`+tt.typ+`","payload":`+tt.payload+`}`)
		if taken := a.Status == 200; taken != tt.taken {
			t.Errorf("%s %s: %d", tt.typ, tt.payload, a.Status)
		}
		if !tt.taken {
			continue
		}
		err := c.instance("events/any.schema.json", h.Do("GET", "/v1/agent/runs/"+run+"/replay.jsonl", "").Body)
		if (err == nil) != tt.fits {
			t.Errorf("%s %s: %v", tt.typ, tt.payload, err)
		}
	}
}
