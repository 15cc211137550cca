package persister

import (
	"bytes"
	"testing"

	"agentstream/schema"
)

// plainPack is where the lines of the tests below stand.
func plainPack(child string) schema.Pack {
	return schema.Pack{Key: schema.RunKey{Tenant: "acme", Run: "r1"}, Child: child, First: 7, Count: 1}
}

var plainSeeds = []string{
	`{"id":"01J","ts":"2026-02-28T23:59:00.000Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"custom.x","run_id":"r1","child_id":null,"seq":7,"payload":{}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"\ud800 \"}}"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":"kid","seq":7,"payload":{"text":"a"}}`,
}

// unusualSeeds are lines that must be left to readRow: some it reads, some it refuses.
var unusualSeeds = []string{
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"turn_id":"t","payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"},"actor":"x"}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"},"payload":{}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"} }`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload": {"text":"a"}}`,
	"{\"id\":\"01J\",\"ts\":\"2026-02-28T23:59:00Z\",\"type\":\"text.delta\",\"run_id\":\"r1\",\"child_id\":null,\"seq\":7,\"payload\":{\r\"text\":\"a\"}}",
	"{\"id\":\"01J\",\"ts\":\"2026-02-28T23:59:00Z\",\"type\":\"text.delta\",\"run_id\":\"r1\",\"child_id\":null,\"seq\":7,\"payload\":{\"text\":\"\xff\"}}",
	`{"id":"01J","ts":"2026-02-28T23:59:00+01:00","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-30T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"of.tomorrow","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"0 J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r2","child_id":null,"seq":7,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":8,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":07,"payload":{"text":"a"}}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":[{}]}`,
	`{"id":"01J","ts":"2026-02-28T23:59:00Z","type":"text.delta","run_id":"r1","child_id":null,"seq":7,"payload":{"a":1}},{"a":{}}`,
}

func TestPlainLines(t *testing.T) {
	for i, line := range plainSeeds {
		if !agree(t, []byte(line), []string{"", "kid"}[i/3]) {
			t.Errorf("not read the short way: %s", line)
		}
	}
	for _, line := range unusualSeeds {
		if agree(t, []byte(line), "") {
			t.Errorf("read the short way: %s", line)
		}
	}
}

// FuzzPlainLines: a line that is read the short way is read the long way to the same row.
func FuzzPlainLines(f *testing.F) {
	for _, line := range append(plainSeeds, unusualSeeds...) {
		f.Add([]byte(line), "")
		f.Add([]byte(line), "kid")
	}
	f.Fuzz(func(t *testing.T, line []byte, child string) {
		if bytes.IndexByte(line, '\n') < 0 && (child == "" || schema.ValidRunID(child) == nil) {
			// else it is no line of a pack
			agree(t, line, child)
		}
	})
}

// agree compares both readings and reports whether the line was read the short way.
func agree(t *testing.T, line []byte, child string) bool {
	t.Helper()
	p := plainPack(child)
	var plain plainLines
	plain.of(&p)
	got, ok := plain.read(p.First, line)
	if !ok {
		return false
	}
	want, err := readRow(&p, p.First, line)
	if err != nil {
		t.Fatalf("%s: read the short way, but: %v", line, err)
	}
	if got.Seq != want.Seq || got.ID != want.ID || got.Type != want.Type || !got.TS.Equal(want.TS) ||
		!bytes.Equal(got.Line, want.Line) || !bytes.Equal(got.Payload, want.Payload) {
		t.Fatalf("%s: %+v, the long way %+v", line, got, want)
	}
	return true
}
