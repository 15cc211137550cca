package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// contract compiles the service's definition: what a client in another language is generated from.
func contract(t testing.TB, message string) protoreflect.MessageDescriptor {
	t.Helper()
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../schema/contracts/agent/v1"}}}
	files, err := c.Compile(context.Background(), "agent.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0].Messages().ByName(protoreflect.Name(message))
}

// decodeMessage reads an encoded Event as a client does. Fields that the contract does not know fail.
func decodeMessage(t testing.TB, d protoreflect.MessageDescriptor, data []byte) (e schema.Event) {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	if len(m.GetUnknown()) > 0 {
		t.Fatalf("fields that are not in the contract: %x", m.GetUnknown())
	}
	text := func(name string) string { return m.Get(d.Fields().ByName(protoreflect.Name(name))).String() }
	number := func(name string) schema.Seq {
		return schema.Seq(m.Get(d.Fields().ByName(protoreflect.Name(name))).Int())
	}
	e = schema.Event{
		ID: text("id"), TS: text("ts"), Type: text("type"), RunID: text("run_id"), ChildID: text("child_id"),
		Seq:      number("seq"),
		FirstSeq: number("first_seq"), TurnID: text("turn_id"), Cause: text("cause"), Actor: text("actor"),
		Payload: json.RawMessage(text("payload")),
	}
	if m.Has(d.Fields().ByName("child_id")) != (e.ChildID != "") {
		t.Fatal("child_id is present and empty")
	}
	path := m.Get(d.Fields().ByName("path")).List()
	for i := range path.Len() {
		e.Path = append(e.Path, path.Get(i).String())
	}
	if extra := text("extra"); extra != "" {
		if !json.Valid([]byte(extra)) || extra[0] != '{' {
			t.Fatalf("extra is no object: %s", extra)
		}
		e.Extra = json.RawMessage(extra[1 : len(extra)-1])
	}
	// What protobuf itself would write for it is what was written: nothing doubled, no other order.
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil || !bytes.Equal(again, data) {
		t.Fatalf("encoded %x, by protobuf %x, %v", data, again, err)
	}
	return e
}

// TestMessagesHoldTheLines holds that each event of each scenario comes out of its message as the line
// of the log that it went in as, byte for byte.
func TestMessagesHoldTheLines(t *testing.T) {
	d := contract(t, "Event")
	for _, s := range append(schematest.All(), schematest.Generate(500, 7)) {
		t.Run(s.Name, func(t *testing.T) {
			p := Dialect{}.Projector(dialect.Request{Stream: StreamGRPC})
			var out dialect.Frames
			for _, pack := range schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run_proto"}, s, 7) {
				for r, err := range pack.Records(0) {
					if err == nil {
						err = p.Project(&out, r)
					}
					if err != nil {
						t.Fatal(err)
					}
					f := out.List[len(out.List)-1]
					if !bytes.Equal(f.Event, r.Type) {
						t.Fatalf("frame of %s is called %s", r.Type, f.Event)
					}
					e := decodeMessage(t, d, f.Data)
					if got := e.AppendLine(nil); !bytes.Equal(got, r.Line) {
						t.Fatalf("got  %s\nwant %s", got, r.Line)
					}
					whole, err := AppendEvent([]byte("before"), r)
					if err != nil || string(whole) != "before"+string(f.Data) {
						t.Fatalf("AppendEvent: %x, %v", whole, err)
					}
				}
			}
		})
	}
}

// TestMessageOfEveryField has an event with all fields, in all the forms that a line can hold them in.
func TestMessageOfEveryField(t *testing.T) {
	d := contract(t, "Event")
	for name, e := range map[string]schema.Event{
		"all": {
			ID: "evt_1", TS: "2026-01-02T03:04:05.678Z", Type: "custom.x", RunID: "run_a", ChildID: "run_b",
			Seq: schema.MaxSeq, FirstSeq: 7,
			TurnID: "turn", Path: []string{"run_a", "run_b"}, Cause: "evt_0", Actor: "tool",
			Extra:   json.RawMessage(`"x":1.10,"y":{"a":["}",",\"",{}]},"z":null,"\"q\":":"\ud800","n":-1e400`),
			Payload: json.RawMessage(`{"a":1.10,"a":2,"s":"\ud800\u0000","deep":[[[{"x":"}"}]]]}`),
		},
		"escapes": {
			ID: "evt_1", TS: "2026-01-02T03:04:05Z", Type: "text.delta", RunID: "run_a", Seq: 1,
			TurnID: "a\"b\\c\nd\u2028é", Cause: "\t", Actor: "ü", Payload: json.RawMessage(`{"payload":",\"payload\":"}`),
		},
		"extra alone": {ID: "e", TS: "2026-01-02T03:04:05Z", Type: "t", RunID: "r", Seq: 2,
			Extra: json.RawMessage(`"a":true`), Payload: json.RawMessage(`{}`)},
		"short seq": {ID: "e", TS: "2026-01-02T03:04:05Z", Type: "t", RunID: "r", Seq: 1,
			Payload: json.RawMessage(`{}`)},
		"large payload": {ID: "e", TS: "2026-01-02T03:04:05Z", Type: "t", RunID: "r", Seq: 3,
			Payload: json.RawMessage(`{"t":"` + strings.Repeat("x", 200<<10) + `"}`)},
		"many ancestors": {ID: "e", TS: "2026-01-02T03:04:05Z", Type: "t", RunID: "r", Seq: 4,
			Path: strings.Split(strings.Repeat("run_x ", 31)+"run_y", " "), Payload: json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			line := e.AppendLine(nil)
			r, err := schema.ScanLine(line)
			if err != nil {
				t.Fatal(err)
			}
			data, err := AppendEvent(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			got := decodeMessage(t, d, data)
			if back := got.AppendLine(nil); !bytes.Equal(back, line) {
				t.Errorf("got  %s\nwant %s", back, line)
			}
		})
	}
}

// TestDamagedLines holds that a line that is not in the form of the log is an error and no half event.
func TestDamagedLines(t *testing.T) {
	for _, tail := range []string{
		``, `,"x":1`, `,"x":`, `,"x"`, `,x:1,"payload":{}`, `"payload":{}`, `,"first_seq":x,"payload":{}`,
		`,"turn_id":7,"payload":{}`, `,"path":{},"payload":{}`, `,"path":["a","payload":{}`, `,"path":[1],"payload":{}`,
		`,"x":"`, `,"turn_id":"\x","payload":{}`,
	} {
		line := `{"id":"e","ts":"t","type":"t","run_id":"r","child_id":null,"seq":1` + tail + `}`
		r := schema.Record{Seq: 1, Type: []byte("t"), Line: []byte(line)}
		if got, err := AppendEvent(nil, r); !errors.Is(err, errLine) || got != nil {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{``, `{`, `{"id":"e"`,
		`{"id":"e","ts":"t","type":"t","run_id":"r","child_id":"c","seq":1,"payload":{}}`} {
		if _, err := AppendEvent(nil, schema.Record{Seq: 1, Type: []byte("t"), Line: []byte(line)}); !errors.Is(err,
			errLine) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestMessagesDoNotAllocate(t *testing.T) {
	e := schema.Event{
		ID: "evt_1", TS: "2026-01-02T03:04:05Z", Type: "text.delta", RunID: "run_a", ChildID: "run_b", Seq: 9, FirstSeq: 3,
		TurnID: "turn", Path: []string{"run_a", "run_b"}, Cause: "evt_0", Actor: "agent",
		Extra: json.RawMessage(`"x":1`), Payload: json.RawMessage(`{"text":"hello"}`),
	}
	r, err := schema.ScanLine(e.AppendLine(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := Dialect{}.Projector(dialect.Request{Stream: StreamGRPC})
	var out dialect.Frames
	if n := testing.AllocsPerRun(1000, func() {
		if err := p.Project(&out, r); err != nil {
			t.Fatal(err)
		}
		out.Reset()
	}); n != 0 {
		t.Errorf("%v allocations for an event", n)
	}
}

// FuzzAppendEvent holds that whatever line the log's own writer makes comes out of its message unchanged.
func FuzzAppendEvent(f *testing.F) {
	d := contract(f, "Event")
	f.Add("turn", "evt_0", "tool", `{"text":"x"}`, `{"a":1}`, int64(0), true)
	f.Add("\"\\", "\n", "", `{"payload":{}}`, ``, int64(5), false)
	f.Fuzz(func(t *testing.T, turn, cause, actor, payload, extra string, first int64, child bool) {
		e := schema.Event{ID: "evt_1", TS: "2026-01-02T03:04:05Z", Type: "custom.x", RunID: "run_a", Seq: 6,
			TurnID: turn, Cause: cause, Actor: actor, Payload: json.RawMessage(payload)}
		if first > 0 && first < 6 {
			e.FirstSeq = schema.Seq(first)
		}
		if child {
			e.ChildID, e.Path = "run_b", []string{"run_a", "run_b"}
		}
		if len(extra) > 2 {
			e.Extra = json.RawMessage(extra[1 : len(extra)-1])
		}
		line := e.AppendLine(nil)
		back, err := schema.DecodeLine(line)
		if err != nil {
			return // not an event
		}
		line = back.AppendLine(nil)
		r, err := schema.ScanLine(line)
		if err != nil {
			return
		}
		data, err := AppendEvent(nil, r)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got := decodeMessage(t, d, data)
		if !bytes.Equal(got.AppendLine(nil), line) {
			t.Fatalf("got  %s\nwant %s", got.AppendLine(nil), line)
		}
	})
}

// request encodes a StreamRequest as a client does.
func request(t testing.TB, d protoreflect.MessageDescriptor, fields map[string]any) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	for name, v := range fields {
		fd := d.Fields().ByName(protoreflect.Name(name))
		switch v := v.(type) {
		case []string:
			list := m.Mutable(fd).List()
			for _, s := range v {
				list.Append(protoreflect.ValueOfString(s))
			}
		case protoreflect.EnumNumber:
			m.Set(fd, protoreflect.ValueOfEnum(v))
		default:
			m.Set(fd, protoreflect.ValueOf(v))
		}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenMessage(t *testing.T) {
	d := contract(t, "StreamRequest")
	const id = "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	type fields = map[string]any
	for _, tt := range []struct {
		name string
		in   fields
		want dialect.Request
		err  error
	}{
		{"run alone", fields{"run_id": "r"}, dialect.Request{Run: "r"}, nil},
		{"everything", fields{
			"run_id": "r", "after_seq": int64(7), "detail": protoreflect.EnumNumber(1),
			"children": []string{"run_b", "-", "run_b"}, "nested": true,
			"types": []string{"tool.*", "text.delta"}, "snapshot": true, "speed": 4.5, "bundle": true,
		}, dialect.Request{
			Run: "r", Cursor: dialect.Cursor{Seq: 7}, Detail: dialect.DetailFull, Snapshot: true, Speed: 4.5, Bundle: true,
			Filter: dialect.Filter{Children: []string{"-", "run_b"}, Nested: true, Types: []string{"text.delta", "tool.*"}},
		}, nil},
		{"event id", fields{"run_id": "r", "after_id": id}, dialect.Request{Run: "r", Cursor: dialect.Cursor{ID: id}}, nil},
		{"largest", fields{"run_id": "r", "after_seq": int64(schema.MaxSeq)},
			dialect.Request{Run: "r", Cursor: dialect.Cursor{Seq: schema.MaxSeq}}, nil},
		{"nothing", nil, dialect.Request{}, schema.ErrBadID},
		{"bad run", fields{"run_id": "a.b"}, dialect.Request{}, schema.ErrBadID},
		{"both cursors", fields{"run_id": "r", "after_seq": int64(7), "after_id": id}, dialect.Request{},
			schema.ErrBadCursor},
		{"negative", fields{"run_id": "r", "after_seq": int64(-1)}, dialect.Request{}, schema.ErrBadCursor},
		{"beyond a float", fields{"run_id": "r", "after_seq": int64(schema.MaxSeq + 1)}, dialect.Request{},
			schema.ErrBadCursor},
		{"seq as an id", fields{"run_id": "r", "after_id": "7"}, dialect.Request{}, schema.ErrBadCursor},
		{"bad id", fields{"run_id": "r", "after_id": "evt_a.b"}, dialect.Request{}, schema.ErrBadCursor},
		{"detail of the future", fields{"run_id": "r", "detail": protoreflect.EnumNumber(2)}, dialect.Request{},
			dialect.ErrBadRequest},
		{"negative detail", fields{"run_id": "r", "detail": protoreflect.EnumNumber(-1)}, dialect.Request{},
			dialect.ErrBadRequest},
		{"bad child", fields{"run_id": "r", "children": []string{"a,b"}}, dialect.Request{}, dialect.ErrBadRequest},
		{"empty child", fields{"run_id": "r", "children": []string{""}}, dialect.Request{}, dialect.ErrBadRequest},
		{"bad type", fields{"run_id": "r", "types": []string{"*.x"}}, dialect.Request{}, dialect.ErrBadRequest},
		{"speed of nothing", fields{"run_id": "r", "speed": math.NaN()}, dialect.Request{}, dialect.ErrBadRequest},
		{"backwards", fields{"run_id": "r", "speed": -1.0}, dialect.Request{}, dialect.ErrBadRequest},
		{"endless speed", fields{"run_id": "r", "speed": math.Inf(1)}, dialect.Request{}, dialect.ErrBadRequest},
	} {
		got, err := Dialect{}.Open(dialect.Input{Stream: StreamGRPC, Body: request(t, d, tt.in)})
		if tt.err == nil {
			tt.want.Stream = StreamGRPC
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) && tt.err == nil || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// TestMalformedMessages has bytes that are no StreamRequest, and ones that are in spite of their looks.
func TestMalformedMessages(t *testing.T) {
	run := protowire.AppendString(protowire.AppendTag(nil, requestRunID, protowire.BytesType), "r")
	with := func(tail ...byte) []byte { return append(append([]byte(nil), run...), tail...) }
	for name, tt := range map[string]struct {
		body []byte
		ok   bool
	}{
		"cut in a tag":       {with(0x80), false},
		"cut in a number":    {with(0x10, 0xFF), false},
		"cut in a string":    {with(0x0A, 5, 'a'), false},
		"length beyond all":  {with(0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F), false},
		"cut in a double":    {with(0x49, 0, 0), false},
		"number of 11 bytes": {with(0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1), false},
		"field 0":            {with(0x00, 0), false},
		"field too high":     {with(0xB8, 0xEE, 0xED, 0xBF, 0x30, 0), false},
		"wire type 6":        {with(0x0E), false},
		"end of no group":    {with(0x0C), false},
		"group without end":  {with(0x7B, 0x10, 1), false},
		"not UTF-8":          {with(0x2A, 1, 0xFF), false},
		"JSON":               {[]byte(`{"run_id":"r"}`), false},
		"unknown fields":     {with(0x7A, 2, 1, 2, 0x7D, 1, 2, 3, 4), true},
		"unknown group":      {with(0x7B, 0x10, 1, 0x7C), true},
		"another wire type":  {with(0x10+2, 1, 'x'), true},
		"given twice": {append(protowire.AppendString(protowire.AppendTag(nil, requestRunID,
			protowire.BytesType), "other"), run...), true},
		"bool that is not one": {with(0x30, 7), true},
	} {
		d := contract(t, "StreamRequest")
		err := proto.Unmarshal(tt.body, dynamicpb.NewMessage(d))
		if (err == nil) != tt.ok {
			t.Errorf("%s: protobuf says %v: the case is wrong", name, err)
		}
		got, err := Dialect{}.Open(dialect.Input{Stream: StreamGRPC, Body: tt.body})
		if (err == nil) != tt.ok || !tt.ok && !errors.Is(err, dialect.ErrBadRequest) || tt.ok && got.Run != "r" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzDecodeRequest holds that the decoder agrees with protobuf's own about every input.
func FuzzDecodeRequest(f *testing.F) {
	d := contract(f, "StreamRequest")
	f.Add(request(f, d, map[string]any{"run_id": "r", "after_seq": int64(7), "types": []string{"a", "b"}, "speed": 2.0,
		"nested": true}))
	f.Add([]byte{0x7B, 0x10, 1, 0x7C})
	f.Fuzz(func(t *testing.T, b []byte) {
		want := dynamicpb.NewMessage(d)
		werr := proto.Unmarshal(b, want)
		got, err := decodeRequest(b)
		if (err == nil) != (werr == nil) {
			t.Fatalf("%x: %v, protobuf says %v", b, err, werr)
		}
		if err != nil {
			return
		}
		get := func(name string) protoreflect.Value { return want.Get(d.Fields().ByName(protoreflect.Name(name))) }
		list := func(name string) (out []string) {
			l := get(name).List()
			for i := range l.Len() {
				out = append(out, l.Get(i).String())
			}
			return out
		}
		w := streamRequest{
			run: get("run_id").String(), afterID: get("after_id").String(), afterSeq: get("after_seq").Int(),
			detail:   uint64(uint32(get("detail").Enum())),
			children: list("children"), types: list("types"), nested: get("nested").Bool(),
			snapshot: get("snapshot").Bool(), bundle: get("bundle").Bool(),
			speed: get("speed").Float(),
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", w) {
			t.Fatalf("%x: got %+v, protobuf %+v", b, got, w)
		}
	})
}
