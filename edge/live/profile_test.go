package live_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/native"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestEventsHaveNoName holds that an EventSource hears every event by onmessage, custom types too, in history and
// live, and that ?event=type names them.
func TestEventsHaveNoName(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.ByName("hostile"), 3)
	for _, query := range []string{"", "event=type", "detail=full", "detail=full&event=type"} {
		for _, s := range readNamed(t, h.Do("GET", "/v1/agent/runs/run/stream?"+query, "").Body) {
			if want := strings.Contains(query, "event=type"); (s.name != "") != want || want && s.name != s.typ {
				t.Errorf("%q: %s is named %q", query, s.typ, s.name)
			}
		}
	}
	h.Do("GET", "/v1/agent/runs/run/stream?event=id", "").Expect(t, http.StatusBadRequest, "BAD-REQUEST")

	// Two that watch live, the one with names and the other without: what is shared must not be mixed up.
	begun := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "both"}, schematest.ByName("tool"), 1)
	h.Store(begun[:3])
	type got struct {
		query string
		list  []named
	}
	answers := make(chan got)
	for _, query := range []string{"detail=full", "detail=full&event=type", "profile=koder-1"} {
		resp, err := h.Client.Do(h.Request("GET", "/v1/agent/runs/both/stream?"+query, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		go func() {
			var b strings.Builder
			_, _ = bufio.NewReader(resp.Body).WriteTo(&b)
			answers <- got{query, readNamed(t, b.String())}
		}()
	}
	for i := 3; i < len(begun); i++ {
		h.Store(begun[i : i+1])
	}
	for range 3 {
		g := <-answers
		if len(g.list) == 0 {
			t.Errorf("%s: nothing came", g.query)
		}
		for _, s := range g.list {
			if want := strings.Contains(g.query, "event=type"); (s.name != "") != want || want && s.name != s.typ {
				t.Errorf("live, %s: %s is named %q", g.query, s.typ, s.name)
			}
		}
	}
}

// named is a frame with its name.
type named struct{ name, typ string }

func readNamed(t testing.TB, body string) (list []named) {
	t.Helper()
	for frame := range strings.SplitSeq(body, "\n\n") {
		var n named
		for line := range strings.SplitSeq(frame, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				n.name = value
			case "data":
				e, err := schema.DecodeLine([]byte(value))
				if err != nil {
					t.Errorf("%v: %s", err, value)
				}
				n.typ = e.Type
			}
		}
		if n.typ != "" {
			list = append(list, n)
		}
	}
	return list
}

// eight are the types of the protocol's own text (native §3).
var eight = []string{"reasoning.delta", "text.delta", "tool.start", "tool.end", "step.boundary", "child.spawn",
	"plan.proposal", "run.lifecycle"}

// inLetter returns what the profile shows of events: the eight types, and a tool's output as text.
func inLetter(events []schema.Event) (want []schema.Event) {
	for _, e := range events {
		if e.Type == schema.TypeToolOutputDelta {
			e.Type = schema.TypeTextDelta
		}
		said := e.Type == schema.TypeTextDelta || e.Type == schema.TypeReasoningDelta
		if slices.Contains(eight, e.Type) && !(said && slices.Contains([]string{"user", "system", "tool"}, e.Actor)) {
			want = append(want, e)
		}
	}
	return want
}

// TestProfile holds that profile=koder-1 is the protocol's text: its eight types and no other, what a tool prints as
// text.delta between tool.start and tool.end, gaps in the numbers explained, from every cursor and over every
// transport.
func TestProfile(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, s := range schematest.All() {
		if s.Name == "long" {
			continue
		}
		run := "p-" + s.Name
		packs := h.Fill(run, s, 3)
		if !packs[len(packs)-1].IsFinal() {
			continue
		}
		all := logged(t, packs)
		want := inLetter(all)
		for after := schema.Seq(0); after < schema.Seq(len(all)); after += 1 + schema.Seq(len(all)/50) {
			rest := slices.DeleteFunc(slices.Clone(want), func(e schema.Event) bool { return e.Seq <= after })
			a := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/stream?profile=koder-1&detail=full", run), "",
				"Last-Event-ID", after.String())
			if len(rest) == 0 { // late events alone, of which the profile has none
				if a.Status != 204 {
					t.Fatalf("%s after %d, with nothing left: %d", run, after, a.Status)
				}
				continue
			}
			list := readFrames(t, a.Events(t))
			tiles(t, list, after)
			for i, got := range list {
				if w := rest[i]; got.Type != w.Type || got.Seq != w.Seq || got.ID != w.ID ||
					string(got.Payload) != string(w.Payload) {
					t.Fatalf("%s after %d: %s, want %s", run, after, got.Line, w.AppendLine(nil))
				}
			}
			if len(list) != len(rest) {
				t.Fatalf("%s after %d: %d events, want %d", run, after, len(list), len(rest))
			}
		}
		folded := readFrames(t, h.Do("GET", "/v1/agent/runs/"+run+"/stream?profile=koder-1", "").Events(t))
		tiles(t, folded, 0)
		equalTexts(t, run, saidBy(t, folded), said(t, want))
	}
	a := h.Do("GET", "/v1/agent/runs/p-tool/stream?profile=koder-1&types=text.*&detail=full", "")
	for _, s := range readFrames(t, a.Events(t)) {
		if s.Type != "text.delta" && s.Type != "run.lifecycle" {
			t.Errorf("types=text.* shows %s", s.Type)
		}
	}
	if n := strings.Count(a.Body, `"text":"line `); n != 3 {
		t.Errorf("types=text.* shows %d pieces of the tool's output, want 3", n)
	}
	for _, query := range []string{"profile=koder-2", "profile=koder-1&bundle=true", "profile=koder-1&snapshot=true",
		"profile=koder-1&types=message.*"} {
		h.Do("GET", "/v1/agent/runs/p-tool/stream?"+query, "").Expect(t, http.StatusBadRequest, "BAD-REQUEST")
	}
}

// TestProfileHidesThePerson holds that what a person wrote is not told as the agent's words.
func TestProfileHidesThePerson(t *testing.T) {
	h := edgetest.NewHouse(t)
	lines := `{"type":"message.start","actor":"user","payload":{"message_id":"m1","role":"user"}}
{"type":"text.delta","actor":"user","payload":{"text":"What is a log?","index":0}}
{"type":"message.end","actor":"user","payload":{"message_id":"m1"}}
{"type":"message.start","payload":{"message_id":"m2","role":"assistant"}}
{"type":"text.delta","payload":{"text":"A list that only grows.","index":0}}
{"type":"tool.output.delta","actor":"tool","payload":{"call_id":"c","text":"printed"}}
{"type":"text.delta","actor":"agent","payload":{"text":" It is numbered.","index":0}}
{"type":"run.lifecycle","payload":{"state":"done"}}
`
	if a := h.Do("POST", "/v1/agent/runs/person/events", lines, "Content-Type", "application/x-ndjson"); a.Status != 200 {
		t.Fatal(a.Body)
	}
	for _, detail := range []string{"", "&detail=full"} {
		list := readFrames(t, h.Do("GET", "/v1/agent/runs/person/stream?profile=koder-1"+detail, "").Events(t))
		tiles(t, list, 0)
		text := ""
		for _, s := range list {
			if _, b, _, ok := schema.SplitText(s.Payload); ok {
				text += string(b)
			}
		}
		if text != "A list that only grows.printed It is numbered." {
			t.Errorf("%q is told", text)
		}
	}
}

// TestProfileOnASocket holds that the subprotocol of its name is the profile, and the protocol's own is not.
func TestProfileOnASocket(t *testing.T) {
	h := edgetest.NewHouse(t)
	all := logged(t, h.Fill("run", schematest.ByName("tool"), 3))
	want := inLetter(all)
	for _, tt := range []struct {
		query, offer, spoken string
		letter               bool
	}{
		{"", "koder-1", "koder-1", true}, {"", "other, koder-1,koder-agent-stream-v1", "koder-1", true},
		{"", "koder-agent-stream-v1, koder-1", "koder-agent-stream-v1", false},
		{"&profile=koder-1", "koder-agent-stream-v1", "koder-agent-stream-v1", true},
	} {
		s, resp, err := h.Dial("/v1/agent/runs/run/stream?detail=full"+tt.query, "Sec-WebSocket-Protocol", tt.offer)
		if err != nil {
			t.Fatal(err)
		}
		lines, ce := s.Wait(t)
		n := len(all)
		if tt.letter {
			n = len(want)
		}
		if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != tt.spoken || len(lines) != n || ce.Code != 1000 {
			t.Errorf("%s%s: speaks %s, %d lines, want %d; %d", tt.offer, tt.query, got, len(lines), n, ce.Code)
		}
	}
}

// TestProfileOverGRPC holds that the request message asks for the profile as the query does.
func TestProfileOverGRPC(t *testing.T) {
	all := logged(t, schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, schematest.ByName("tool"), 3))
	req, err := native.Dialect{}.Open(dialect.Input{Stream: native.StreamGRPC, Body: []byte("\x0a\x03run\x5a\x07koder-1")})
	if err != nil || !req.Filter.Agent || len(req.Filter.Types) != 9 {
		t.Fatalf("%+v: %v", req, err)
	}
	p := native.Dialect{}.Projector(req)
	for _, e := range all {
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			t.Fatal(err)
		}
		var out dialect.Frames
		if err := p.Project(&out, r); err != nil {
			t.Fatal(err)
		}
		if e.Type == schema.TypeToolOutputDelta &&
			(strings.Contains(string(out.List[0].Data), e.Type) ||
				!strings.Contains(string(out.List[0].Data), "\x1a\x0atext.delta")) {
			t.Errorf("%q", out.List[0].Data)
		}
	}
	if _, err := (native.Dialect{}).Open(dialect.Input{Stream: native.StreamGRPC,
		Body: []byte("\x0a\x03run\x5a\x01x")}); err == nil {
		t.Error("a profile that is not there is taken")
	}
}
