package schema_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"agentstream/schema"
)

// FuzzParseSnapshot: whatever is taken for a snapshot is written as one that is read as the same.
func FuzzParseSnapshot(f *testing.F) {
	for _, s := range snapshotCases() {
		if s.Name != "hostile" && s.Name != "long" && s.Name != "generated" {
			f.Add(foldOf(s).AppendSnapshot(nil))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fold, err := schema.ParseSnapshot(data)
		if err != nil {
			return
		}
		one := fold.AppendSnapshot(nil)
		if !json.Valid(one) {
			t.Fatalf("not JSON: %q", one)
		}
		again, err := schema.ParseSnapshot(one)
		if err != nil {
			t.Fatal(err)
		}
		if two := again.AppendSnapshot(nil); !bytes.Equal(one, two) {
			t.Fatalf("\nfirst %s\nthen  %s", one, two)
		}
	})
}

// FuzzFold: a payload of any type, in any place, leads to a snapshot that keeps its contract, the same
// by Add and by AddRecord, and from its own snapshot on.
func FuzzFold(f *testing.F) {
	types := schema.Types()
	for i, info := range types {
		for _, p := range examples[info.Name] {
			f.Add(uint8(i), uint8(0), []byte(p), []byte(`{"text":"more","index":1,"call_id":"c1"}`))
		}
	}
	sch := contract(f)
	f.Fuzz(func(t *testing.T, a, b uint8, one, two []byte) {
		var byEvent, byRecord schema.Fold
		for i := range 6 {
			e := schema.Event{Type: types[int(a)%len(types)].Name, Payload: one, ID: schema.EventPrefix + "1",
				TS: "2026-01-02T03:04:05.000Z", RunID: "run_1", Seq: schema.Seq(i + 1)}
			if i%2 == 1 {
				e.Type, e.Payload, e.ChildID = types[int(b)%len(types)].Name, two, [3]string{"", "run_a", "run_b"}[i/2]
			}
			if e.Prepare("run_1") != nil {
				continue
			}
			byEvent.Add(&e)
			r, err := schema.ScanLine(e.AppendLine(nil))
			if err != nil {
				t.Fatal(err)
			}
			byRecord.AddRecord(r)
			snapshot := byRecord.AppendSnapshot(nil)
			checkSnapshot(t, sch, snapshot)
			if other := byEvent.AppendSnapshot(nil); !bytes.Equal(other, snapshot) {
				t.Fatalf("\nevent  %s\nrecord %s", other, snapshot)
			}
			if i == 3 {
				back, err := schema.ParseSnapshot(snapshot)
				if err != nil {
					t.Fatal(err)
				}
				byEvent = *back
			}
		}
	})
}
