package native

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// TestPublished: what a message holds becomes a line that holds the same.
func TestPublished(t *testing.T) {
	m := dynamicpb.NewMessage(compileText(t, "").Messages().ByName("PublishRequest"))
	for _, tt := range []struct{ message, want string }{
		{`{"event":{"runId":"r","type":"text.delta","payload":"{\"text\":\"a\"}"}}`,
			`{"run_id":"r","type":"text.delta","payload":{"text":"a"}}`},
		{`{"key":"k\"","event":{"id":"e","ts":"2026-01-02T03:04:05Z","type":"custom.x","runId":"r","childId":"c","seq":"7","turnId":"t","path":["r","c"],"cause":"é","actor":"tool","extra":"{\"x\": 1}"}}`,
			`{"run_id":"r","id":"e","ts":"2026-01-02T03:04:05Z","type":"custom.x","child_id":"c","turn_id":"t","cause":"é","actor":"tool","key":"k\"","seq":7,"path":["r","c"],"x": 1}`},
		{`{"event":{"runId":"r","type":"custom.x","firstSeq":"3","extra":" { } ","payload":"{\n\"a\" :\n1}"}}`,
			`{"run_id":"r","type":"custom.x","first_seq":3,"payload":{"a":1}}`},
		{`{}`, `{"run_id":""}`},
	} {
		if err := protojson.Unmarshal([]byte(tt.message), m); err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := (Dialect{}).AppendPublished([]byte("x"), b); err != nil || string(line) != "x"+tt.want {
			t.Errorf("%s, %v\nwant %s", line, err, tt.want)
		}
	}
	for _, tt := range []struct {
		message string
		err     error
	}{
		{"\xff\xff", dialect.ErrBadRequest}, {"\x0a\x05a", dialect.ErrBadRequest},
		{"\x0a\x02\xff\xff", dialect.ErrBadRequest},
		{"\x0a\x05\x62\x03[1]", dialect.ErrBadRequest}, {"\x0a\x05\x6a\x03{\n,", schema.ErrMalformed},
	} {
		if line, err := (Dialect{}).AppendPublished(nil, []byte(tt.message)); !errors.Is(err, tt.err) {
			t.Errorf("%q: %s, %v", tt.message, line, err)
		}
	}
}

// TestReceipt: the message holds what the receipt does.
func TestReceipt(t *testing.T) {
	m := dynamicpb.NewMessage(compileText(t, "").Messages().ByName("PublishReceipt"))
	for want, r := range map[string]dialect.Receipt{
		`{"line":"3","runId":"r","firstSeq":"1","lastSeq":"2","rootRunId":"o","replayed":true}`: {Line: 3, Run: "r",
			First: 1, Last: 2, Root: "o", Replayed: true},
		`{"line":"4","error":{"code":"C","message":"m\ufffd","field":"/run_id","retryAfter":5}}`: {Line: 4, Code: "C",
			Message: "m\xff", Field: "/run_id", Retry: 5},
	} {
		if err := proto.Unmarshal((Dialect{}).AppendReceipt(nil, r), m); err != nil {
			t.Fatal(err)
		}
		b, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(strings.ReplaceAll(string(b), `", "`, `","`), `, "`,
			`,"`); got != strings.ReplaceAll(want, `\ufffd`, "\uFFFD") {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
