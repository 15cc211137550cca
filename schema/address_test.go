package schema_test

import (
	"errors"
	"strings"
	"testing"

	"agentstream/schema"
)

// TestReadAddress: what a line says of where it goes, and what is left of it.
func TestReadAddress(t *testing.T) {
	long := strings.Repeat("r", schema.MaxRunID)
	for name, tt := range map[string]struct {
		line, run, key, id string
		seq                schema.Seq
		left               string // "": the line
		err                error
	}{
		"plain": {line: `{"run_id":"r1","type":"progress"}`, run: "r1"},
		"behind": {line: ` { "type" : "progress" , "payload":{"run_id":"no","key":"no"} , "run_id" : "r1" } `,
			run: "r1"},
		"one letter": {line: `{"run_id":"r"}`, run: "r"},
		"longest":    {line: `{"run_id":"` + long + `"}`, run: long},
		"key first":  {line: `{"key":"k","run_id":"r1"}`, run: "r1", key: "k", left: `{"run_id":"r1"}`},
		"key between": {line: `{"run_id":"r1", "key" : "k\u0041" ,"id":"e"}`, run: "r1", key: "kA", id: "e",
			left: `{"run_id":"r1","id":"e"}`},
		"key last": {line: `{"run_id":"r1","seq":7 , "key":"k" }`, run: "r1", key: "k", seq: 7,
			left: `{"run_id":"r1","seq":7}`},
		"no seq":   {line: `{"run_id":"r1","seq":"7","id":null}`, run: "r1"},
		"empty":    {line: ``, err: schema.ErrNoObject},
		"garbage":  {line: "\x00\xff", err: schema.ErrNoObject},
		"array":    {line: `[{"run_id":"r1"}]`, err: schema.ErrNoObject},
		"cut":      {line: `{"run_id":"r1"`, err: schema.ErrNoObject},
		"cut name": {line: `{"run_i`, err: schema.ErrNoObject},
		"no value": {line: `{"run_id":}`, err: schema.ErrNoObject},
		"comma":    {line: `{"run_id":"r1",}`, err: schema.ErrNoObject},
		"no comma": {line: `{"run_id":"r1" "key":"k"}`, err: schema.ErrNoObject},
		"two":      {line: `{"run_id":"r1"}{"run_id":"r1"}`, err: schema.ErrNoObject},
		"deep": {line: `{"run_id":"r1","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
			err: schema.ErrNoObject},
		"nothing":         {line: `{}`, err: schema.ErrNoRun},
		"no run":          {line: `{"type":"progress","payload":{"run_id":"r1"}}`, err: schema.ErrNoRun},
		"null":            {line: `{"run_id":null}`, err: schema.ErrMalformed},
		"number":          {line: `{"run_id":7}`, err: schema.ErrMalformed},
		"wild":            {line: `{"run_id":"a.>"}`, err: schema.ErrBadID},
		"root lane":       {line: `{"run_id":"-"}`, err: schema.ErrBadID},
		"nameless":        {line: `{"run_id":""}`, err: schema.ErrBadID},
		"too long":        {line: `{"run_id":"` + long + `r"}`, err: schema.ErrBadID},
		"key twice":       {line: `{"run_id":"r1","key":"k","key":"k"}`, err: schema.ErrMalformed},
		"key number":      {line: `{"run_id":"r1","key":1}`, err: schema.ErrMalformed},
		"key empty":       {line: `{"run_id":"r1","key":""}`, err: schema.ErrMalformed},
		"key and bad run": {line: `{"key":"k","run_id":"*"}`, err: schema.ErrBadID},
	} {
		t.Run(name, func(t *testing.T) {
			line := []byte(tt.line)
			a, err := schema.ReadAddress(line)
			if tt.err != nil {
				if !errors.Is(err, tt.err) || !errors.Is(err, schema.ErrMalformed) && !errors.Is(err, schema.ErrBadID) {
					t.Fatalf("%+v, %v", a, err)
				}
				return
			}
			if err != nil || string(a.Run) != tt.run || a.Key != tt.key || string(a.ID) != tt.id || a.Seq != tt.seq {
				t.Errorf("%+v, %v", a, err)
			}
			if left := strings.ReplaceAll(string(line), " ", ""); tt.left != "" && left != tt.left || tt.left == "" &&
				string(line) != tt.line || len(line) != len(tt.line) {
				t.Errorf("left %s", line)
			}
		})
	}
}

// FuzzReadAddress: a line whose address can be read is one that DecodeBatch takes for that run, or refuses; it never
// goes to another one.
func FuzzReadAddress(f *testing.F) {
	f.Add(`{"run_id":"r1","key":"k","type":"text.delta","payload":{"text":"a"}}`)
	f.Add(`{"key":"k" ,"run\u005fid":"r2","run_id":"r1","type":"progress"}`)
	f.Add(`{ "payload":{"run_id":"x"},"run_id":"r1","type":"custom.x","key":"\n"}`)
	f.Fuzz(func(t *testing.T, text string) {
		line := []byte(text)
		a, err := schema.ReadAddress(line)
		if err != nil {
			return
		}
		events, err := schema.DecodeBatch(string(a.Run), line)
		if err == nil && (len(events) != 1 || events[0].RunID != string(a.Run)) {
			t.Fatalf("%q: %d events of %q", text, len(events), events[0].RunID)
		}
	})
}

func BenchmarkReadAddress(b *testing.B) {
	line := []byte(`{"run_id":"run_01J0000000000000000000","type":"text.delta","payload":{"text":"` +
		strings.Repeat("word ", 40) + `"}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.ReadAddress(line); err != nil {
			b.Fatal(err)
		}
	}
}
