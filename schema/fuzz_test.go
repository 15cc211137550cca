package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// FuzzDecodeBatch: whatever is let in becomes one line without line breaks, which scans, decodes to
// an equal event, and is within the bounds.
func FuzzDecodeBatch(f *testing.F) {
	for _, s := range schematest.All() {
		if s.Name == "long" {
			continue
		}
		var body []byte
		for i := range s.Events {
			body = append(s.Events[i].AppendLine(body), '\n')
		}
		if len(body) < 20000 {
			f.Add(bytes.ReplaceAll(body, []byte(`"id":"","ts":"",`), nil))
		}
	}
	for _, p := range schematest.HostilePayloads() {
		if len(p) > 4000 { // the fuzzer spends its time on making long inputs short
			continue
		}
		f.Add([]byte(`{"type":"text.delta","payload":` + p + `}`))
	}
	for _, body := range []string{
		"[{\"type\":\"progress\"},\n {\"type\":\"custom.x\",\"payload\":{\r\n}}]", "{\n\"type\":\"progress\"}",
		"\xef\xbb\xbf{}", "[", "[]", "[[", "{}\n{}",
		`{"type":"progress","x":1,"\u0078y":[1.0,{"a":null}],"turn_id":"\ud800","path":[],"cause":"\u2028","actor":"\u0000"}`,
		"{\"type\":\"custom.a\",\"payload\":{\"a\"\t:\r1}}", `{"type":"run.lifecycle","payload":{"state":"done"},"seq":1}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := schema.DecodeBatch("run_1", body)
		if err != nil {
			var at *schema.BatchError
			if !errors.As(err, &at) || at.Line < 1 || events != nil {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if len(events) == 0 {
			t.Fatal("accepted nothing")
		}
		for i := range events {
			checkAccepted(t, events[i])
		}
	})
}

func checkAccepted(t *testing.T, e schema.Event) {
	t.Helper()
	e.ID, e.TS, e.RunID, e.Seq = "evt_1", "2026-01-02T03:04:05.000Z", "run_1", 7
	line := e.AppendLine(nil)
	for _, c := range line {
		if c < 0x20 && c != '\t' { // tabs may stand between tokens
			t.Fatalf("raw control character %q in %q", c, line)
		}
	}
	if !utf8.Valid(line) || !json.Valid(line) {
		t.Fatalf("not JSON: %q", line)
	}
	if len(line) > e.Size() || len(line) > schema.MaxEventBytes {
		t.Fatalf("%d bytes, Size says %d", len(line), e.Size())
	}
	agree(t, line)
	again, err := schema.DecodeLine(line)
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	if b := again.AppendLine(nil); !bytes.Equal(b, line) {
		t.Fatalf("\nfirst %q\nthen  %q", line, b)
	}
	var fold schema.Fold
	fold.Add(&again)
	head := schema.Head{Last: 6}
	if err := head.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil || head.Last != 7 {
		t.Fatalf("%v %+v", err, head)
	}
}

// agree holds the cheap view of a line to its decoding, when both take it.
func agree(t *testing.T, line []byte) {
	t.Helper()
	r, err := schema.ScanLine(line)
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	e, err := schema.DecodeLine(line)
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	if r.Seq != e.Seq || string(r.Type) != e.Type || string(r.Child) != e.ChildID || !bytes.Equal(r.Payload(), e.Payload) {
		t.Fatalf("scanned %d %s %s %s, decoded %+v", r.Seq, r.Type, r.Child, r.Payload(), e)
	}
}

// FuzzScanLine: never a panic on foreign bytes, and what a checked pack holds is read alike by both
// readers.
func FuzzScanLine(f *testing.F) {
	for _, s := range schematest.All() {
		if s.Name == "long" {
			continue
		}
		for _, line := range schematest.Lines(schematest.Packs(acme, s, 0)) {
			if len(line) < 4000 {
				f.Add([]byte(line))
			}
		}
	}
	head := `{"id":"e","ts":"2026-01-02T03:04:05Z","type":"x","run_id":"r","child_id":null,"seq":7`
	for _, tail := range []string{`,"payload":{}}`, `,"payload":{},"x":1}`, `,"x":{"payload":1},"payload":{}}`,
		`,"payl\u006fad":{}}`, `,"payload":}`, `,"x":"\"}`, `,"payload": {}}`} {
		f.Add([]byte(head + tail))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := schema.ScanLine(line)
		if err != nil {
			if !errors.Is(err, schema.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		payload := r.Payload()
		if !bytes.Contains(line, payload) || r.Seq < 0 || bytes.ContainsAny(r.Type, `"\`) ||
			bytes.ContainsAny(r.Child, `"\`) {
			t.Fatalf("%+v", r)
		}
		e, err := r.Event()
		if err != nil || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		p := schema.Pack{Key: schema.RunKey{Tenant: "t", Run: e.RunID}, Child: e.ChildID, First: r.Seq, Count: 1,
			Body: append(bytes.Clone(line), '\n')}
		if p.Check() == nil {
			agree(t, line)
		}
	})
}

// FuzzParsePack: what is accepted has exactly the numbers of its headers, and writes headers that
// parse to the same pack.
func FuzzParsePack(f *testing.F) {
	for _, s := range []string{"tool", "children", "hostile"} {
		for _, p := range schematest.Packs(acme, schematest.ByName(s), 5) {
			if len(p.Body) > 4000 {
				continue
			}
			h := p.Headers()
			get := func(name string) string { return strings.Join(h[name], "") }
			f.Add(schema.Subject(p.Key, p.Child, 4), get(schema.HeaderSeq), get(schema.HeaderCount),
				get(schema.HeaderDay), get(schema.HeaderState),
				get(schema.HeaderLane), get(schema.HeaderLastID), "abc/0", p.Body)
		}
	}
	f.Add("agent.0.t.r.-", "1", "1", "20260102", "", "", "", "", []byte("\n"))
	f.Add("live.agent.9.t.r.c", "9007199254740991", "+2", "00000000", "done", "o/0", "e", "/0", []byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, subject, seq, count, day, state, lane, lastID, batch string, body []byte) {
		header := map[string][]string{schema.HeaderSeq: {seq}, schema.HeaderCount: {count}, schema.HeaderDay: {day},
			schema.HeaderState: {state},
			schema.HeaderLane:  {lane}, schema.HeaderLastID: {lastID}, schema.HeaderBatch: {batch}, schema.HeaderWriter: {"w"}}
		p, err := schema.ParsePack(subject, header, body, 3)
		if err != nil {
			if !errors.Is(err, schema.ErrBadPack) {
				t.Fatal(err)
			}
			return
		}
		if p.First < 1 || p.Count < 1 || p.Last() != p.First+schema.Seq(p.Count)-1 || p.Head.Last != p.Last() ||
			p.Key.Validate() != nil ||
			bytes.Count(body, []byte("\n")) != p.Count {
			t.Fatalf("%+v", p)
		}
		for _, after := range []schema.Seq{0, p.First, p.Last()} {
			want := max(after+1, p.First)
			for r, err := range p.Records(after) {
				if err == nil && r.Seq != want {
					t.Fatalf("record %d where %d was due", r.Seq, want)
				}
				want++
			}
		}
		again, err := schema.ParsePack(schema.Subject(p.Key, p.Child, 4), p.Headers(), body, 3)
		if err != nil {
			t.Fatalf("own headers are refused: %v %v", err, p.Headers())
		}
		if p.Head.Lane.Owner == "" { // an epoch without an owner says nothing
			p.Head.Lane.Epoch = 0
		}
		if p.Batch == "" {
			p.Part = 0
		}
		if strings.ContainsAny(p.Writer+p.Head.Lane.Owner+p.Batch, " =") || lane == "/0" {
			return // no writer has such a name, which only one header would show
		}
		short := map[string][]string{schema.HeaderPack: {string(p.AppendHeader(nil))}}
		if one, err := schema.ParsePack(schema.Subject(p.Key, p.Child, 4), short, body, 3); err != nil ||
			sketchPack(one) != sketchPack(again) {
			t.Fatalf("one header %v: %v", short, err)
		}
		if a, b := sketchPack(p), sketchPack(again); a != b {
			t.Fatalf("\nfirst %s\nthen  %s", a, b)
		}
		_ = p.Check()
	})
}

func sketchPack(p schema.Pack) string {
	p.Body = nil
	b, _ := json.Marshal(p)
	return string(b)
}

// FuzzParseCursor: a cursor prints as the number that it is.
func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", "0", "1", "007", "9007199254740991", "9007199254740992", "-1", "+1", "1e3", "evt_1",
		" 1", "١", "9999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := schema.ParseCursor(s)
		if err != nil {
			if !errors.Is(err, schema.ErrBadCursor) || n != 0 {
				t.Fatalf("%d %v", n, err)
			}
			return
		}
		if n < 0 || n > schema.MaxSeq || len(s) > 16 {
			t.Fatalf("%q is %d", s, n)
		}
		if trimmed := strings.TrimLeft(s, "0"); trimmed != "" && trimmed != n.String() || trimmed == "" && n != 0 {
			t.Fatalf("%q is %d", s, n)
		}
		if again, err := schema.ParseCursor(n.String()); err != nil || again != n {
			t.Fatalf("%d: %d %v", n, again, err)
		}
	})
}

// FuzzParseSubject: what is accepted is a subject that a writer of this project builds.
func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"agent.0.t.r.-", "live.agent.3.acme.run_1.run_2", "agent.0.t.r", "agent.0.t.-.-",
		"agent.0.*.>.-", "agent.0.t.r.c.d", "agent.....", "agent.0.t\r\n.r.-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, lane, err := schema.ParseSubject(s)
		if err != nil {
			if !errors.Is(err, schema.ErrBadPack) {
				t.Fatal(err)
			}
			return
		}
		if key.Validate() != nil || lane != "" && schema.ValidRunID(lane) != nil {
			t.Fatalf("%q: %v %q", s, key, lane)
		}
		built := schema.Subject(key, lane, 8)
		if strings.ContainsAny(built, "*> \r\n\x00") || strings.Count(built, ".") != 4 {
			t.Fatalf("built %q", built)
		}
		if k, l, err := schema.ParseSubject(built); err != nil || k != key || l != lane {
			t.Fatalf("%q: %v %q %v", built, k, l, err)
		}
	})
}
