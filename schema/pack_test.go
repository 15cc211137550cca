package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestPackHeadersRoundTrip: a pack is the same after the broker has had it.
func TestPackHeadersRoundTrip(t *testing.T) {
	for _, s := range append(schematest.All(), schematest.Generate(800, 3)) {
		for i, p := range schematest.Packs(acme, s, 7) {
			p.Batch, p.Part = fmt.Sprintf("%064x", i), i
			got, err := schema.ParsePack(schema.Subject(p.Key, p.Child, 4), p.Headers(), p.Body, p.Head.Stored)
			if err != nil {
				t.Fatalf("%s pack %d: %v", s.Name, i, err)
			}
			if !reflect.DeepEqual(p, got) {
				t.Fatalf("%s pack %d\nwant %+v\n got %+v", s.Name, i, p.Head, got.Head)
			}
			text := "NATS/1.0\r\nNats-Stream: AGENT_1\r\nNats-Sequence: " + strconv.FormatUint(p.Head.Stored, 10) + "\r\n"
			for name, values := range p.Headers() {
				text += name + ": " + values[0] + "\r\n"
			}
			if got, err = schema.ParseCopy(schema.Subject(p.Key, p.Child, 4), text+"\r\n", p.Body); err != nil ||
				!reflect.DeepEqual(p, got) {
				t.Fatalf("%s pack %d, a copy: %v\nwant %+v\n got %+v", s.Name, i, err, p.Head, got.Head)
			}
			text = "NATS/1.0\r\n" + schema.HeaderPack + ": " + string(p.AppendHeader(nil)) + "\r\nNats-Sequence: " +
				strconv.FormatUint(p.Head.Stored, 10) + "\r\n\r\n"
			if got, err = schema.ParseCopy(schema.Subject(p.Key, p.Child, 4), text, p.Body); err != nil ||
				!reflect.DeepEqual(p, got) {
				t.Fatalf("%s pack %d, a copy with one header: %v\nwant %+v\n got %+v", s.Name, i, err, p.Head, got.Head)
			}
			short := map[string][]string{schema.HeaderPack: {string(p.AppendHeader(nil))}}
			if got, err = schema.ParsePack(schema.Subject(p.Key, p.Child, 4), short, p.Body,
				p.Head.Stored); err != nil || !reflect.DeepEqual(p, got) {
				t.Fatalf("%s pack %d, one header: %v\nwant %+v\n got %+v", s.Name, i, err, p.Head, got.Head)
			}
			for name, values := range p.Headers() {
				if v := strings.Join(values, ""); strings.ContainsFunc(v, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
					t.Errorf("header %s holds %q", name, v)
				}
			}
		}
	}
}

func TestHeaderLeavesOut(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("native"), 1)[0]
	p.Head.State, p.Head.Lane = "", schema.Lane{}
	h := p.Headers()
	for _, name := range []string{schema.HeaderState, schema.HeaderLane, schema.HeaderBatch} {
		if _, ok := h[name]; ok {
			t.Errorf("%s stands there without a value", name)
		}
	}
}

// TestPackHeaderRefuses: one header is refused for what the headers of its values are, and for another form.
func TestPackHeaderRefuses(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("tool"), 8)[1]
	p.Writer, p.Head.Day, p.Head.LastID = "w", "20260102", "="
	p.Head.State, p.Head.Lane, p.Batch = "running", schema.Lane{Owner: "o", Epoch: 3}, ""
	parse := func(value string) (schema.Pack, error) {
		return schema.ParsePack(schema.Subject(p.Key, p.Child, 4), map[string][]string{schema.HeaderPack: {value}}, p.Body, 1)
	}
	good := fmt.Sprintf("1 %d 8 w 20260102 running o/3 = =", p.First)
	if got, err := parse(good); err != nil || got.First != p.First || got.Head.Lane != p.Head.Lane ||
		got.Head.LastID != "" || got.Head.State != "running" {
		t.Fatalf("%+v, %v", got, err)
	}
	for old, new := range map[string]string{
		"1 ": "2 ", " 8 ": " 7 ", " w ": " ", "20260102": "2026", "running": "finished", "o/3": "o", " = =": " =",
		"= =": "é =", "=": "", "8 w": "8  w",
	} {
		if _, err := parse(strings.Replace(good, old, new, 1)); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%q for %q: %v", new, old, err)
		}
	}
	for _, value := range []string{"", "1", good + " ", " " + good} {
		if _, err := parse(value); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestRecords(t *testing.T) {
	packs := schematest.Packs(acme, schematest.ByName("long"), 0)
	p := &packs[0]
	if p.Count < 100 {
		t.Fatalf("pack of %d", p.Count)
	}
	for _, after := range []schema.Seq{0, 1, 57, p.Last() - 1, p.Last(), p.Last() + 5} {
		want := after + 1
		for r, err := range p.Records(after) {
			if err != nil || r.Seq != want {
				t.Fatalf("after %d: seq %d, want %d, %v", after, r.Seq, want, err)
			}
			want++
		}
		if last := max(after, p.Last()); want != last+1 {
			t.Errorf("after %d: ended at %d", after, want-1)
		}
	}
	for range p.Records(0) {
		break // a walk that is left early must not panic
	}
}

// TestRecordsOfDamagedPack: damage is an error at its place, and nothing after it is shown.
func TestRecordsOfDamagedPack(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("plain"), 6)[0]
	lines := bytes.SplitAfter(p.Body, []byte("\n"))
	for name, damage := range map[string]func([]byte) []byte{
		"gone":  func([]byte) []byte { return nil },
		"text":  func([]byte) []byte { return []byte("not json\n") },
		"seq":   func(l []byte) []byte { return bytes.Replace(l, []byte(`"seq":3`), []byte(`"seq":4`), 1) },
		"order": func(l []byte) []byte { return bytes.Replace(l, []byte(`{"id"`), []byte(`{"x":1,"id"`), 1) },
	} {
		bad := p
		body := bytes.Join([][]byte{lines[0], lines[1], damage(lines[2]), lines[3], lines[4], lines[5]}, nil)
		bad.Body = body
		n, failed := 0, error(nil)
		for r, err := range bad.Records(0) {
			if failed != nil {
				t.Errorf("%s: the walk goes on after its error", name)
			}
			if failed = err; err == nil {
				if n++; r.Seq != schema.Seq(n) {
					t.Errorf("%s: seq %d at %d", name, r.Seq, n)
				}
			}
		}
		if n != 2 || !errors.Is(failed, schema.ErrBadPack) {
			t.Errorf("%s: %d records, %v", name, n, failed)
		}
		if err := bad.Check(); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%s: Check %v", name, err)
		}
	}
}

// TestCheckRefuses what scans but is not of this pack, or reads differently when decoded.
func TestCheckRefuses(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("plain"), 4)[0]
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) func(*schema.Pack) {
		return func(p *schema.Pack) {
			if !bytes.Contains(p.Body, []byte(old)) {
				t.Fatalf("no %s in %s", old, p.Body)
			}
			p.Body = bytes.Replace(p.Body, []byte(old), []byte(new), 1)
		}
	}
	for name, change := range map[string]func(*schema.Pack){
		"child":   replace(`"child_id":null`, `"child_id":"run_c"`),
		"lane":    func(p *schema.Pack) { p.Child = "run_c" },
		"run":     replace(`"run_id":"`+testRun, `"run_id":"run_other`),
		"first":   func(p *schema.Pack) { p.First++ },
		"count":   func(p *schema.Pack) { p.Count++ },
		"no line": func(p *schema.Pack) { p.Body = nil },
		"field behind": replace(`,"payload":{"state":"planning","reason":null}`,
			`,"payload":{"state":"planning","reason":null},"x":1`),
		"no payload":     replace(`,"payload":{"state":"planning","reason":null}`, `,"x":1`),
		"escaped name":   replace(`"payload":`, `"payl\u006fad":`),
		"escaped type":   replace(`run.lifecycle`, `run\u002elifecycle`),
		"payload list":   replace(`{"state":"planning","reason":null}`, `[]`),
		"space":          replace(`"payload":{`, `"payload": {`),
		"carriage":       replace(`"payload":{`, "\"payload\":{\r"),
		"invalid utf-8":  replace(`planning`, "plann\xffing"),
		"invalid id":     replace(`"id":"evt_`, `"id":"evt `),
		"duplicate":      replace(`,"payload"`, `,"x":1,"x":1,"payload"`),
		"invalid number": replace(`,"payload"`, `,"x":01,"payload"`),
	} {
		bad := p
		bad.Body = bytes.Clone(p.Body)
		change(&bad)
		if err := bad.Check(); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParsePackRefuses(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("tool"), 8)[1]
	subject := schema.Subject(p.Key, p.Child, 4)
	parse := func(change func(h map[string][]string)) error {
		h := maps.Clone(p.Headers())
		change(h)
		_, err := schema.ParsePack(subject, h, p.Body, 1)
		return err
	}
	if err := parse(func(map[string][]string) {}); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string][]string{
		schema.HeaderSeq: {"", "0", "-1", "+1", " 1", "1 ", "1.0", "0x1", "9007199254740992", "99999999999999999999",
			"1\r\n", "١"},
		schema.HeaderCount:  {"", "0", "-8", "7", "9", "x", "8.0", "1e1", "99999999999999999999999"},
		schema.HeaderDay:    {"", "2026", "2026-01-02", "202601021", "2026010x", "２０２６"},
		schema.HeaderState:  {"finished", "Done", "done ", "\x00"},
		schema.HeaderLane:   {"owner", "owner/", "owner/x", "owner/-1", "owner/1/2", "/"},
		schema.HeaderLastID: {"evt 1", "evt\n1", "évt", strings.Repeat("x", 129)},
		schema.HeaderBatch:  {"abc", "abc/", "abc/x", "abc/-1", "abc/99999999999999999999"},
	} {
		for _, v := range values {
			if err := parse(func(h map[string][]string) { h[name] = []string{v} }); !errors.Is(err, schema.ErrBadPack) {
				t.Errorf("%s: %q: %v", name, v, err)
			}
		}
	}
	for _, name := range []string{schema.HeaderSeq, schema.HeaderCount, schema.HeaderDay} {
		if err := parse(func(h map[string][]string) { delete(h, name) }); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("without %s: %v", name, err)
		}
		if err := parse(func(h map[string][]string) { h[name] = []string{} }); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("empty %s: %v", name, err)
		}
	}
	for _, body := range []string{"", "\n", string(p.Body[:len(p.Body)-1]), string(p.Body) + "\n", string(p.Body) + "x"} {
		if _, err := schema.ParsePack(subject, p.Headers(), []byte(body), 1); !errors.Is(err, schema.ErrBadPack) {
			t.Errorf("body of %d bytes: %v", len(body), err)
		}
	}
	if _, err := schema.ParsePack("agent.0.acme.run.a.b", p.Headers(), p.Body, 1); !errors.Is(err, schema.ErrBadPack) {
		t.Errorf("subject: %v", err)
	}
}

// TestOldHeader: packs of before say which messages are open, which nobody reads any more.
func TestOldHeader(t *testing.T) {
	p := schematest.Packs(acme, schematest.ByName("plain"), 8)[0]
	h := p.Headers()
	h["Agent-Anchors"] = []string{"-=2,run_a=9"}
	got, err := schema.ParsePack(schema.Subject(p.Key, p.Child, 4), h, p.Body, p.Head.Stored)
	if err != nil || !reflect.DeepEqual(p, got) {
		t.Errorf("%v\nwant %+v\n got %+v", err, p.Head, got.Head)
	}
}

func TestLines(t *testing.T) {
	for body, want := range map[string][]string{
		"": nil, "\n\n": nil, "a": {"a"}, "a\n": {"a"}, "a\nb": {"a", "b"}, "\na\n\nb\n": {"a", "b"}, "a\r\n": {"a\r"},
	} {
		var got []string
		for line := range schema.Lines([]byte(body)) {
			got = append(got, string(line))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q", body, got)
		}
	}
}
