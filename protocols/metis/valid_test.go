//go:build !race

package metis

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"agentstream/protocols/metis/metistest"
	"agentstream/schema/schematest"
)

// TestFramesAreValid: every frame of every log holds to the schemas that are written from the protocol's text, and a
// client that knows that text alone shows the same whether it begins with a snapshot or with the first event.
func TestFramesAreValid(t *testing.T) {
	t.Parallel()
	types, err := metistest.Types()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Types() {
		if !slices.Contains(types, name) {
			t.Errorf("%s is not in the schemas", name)
		}
	}
	if len(types) != len(Types()) {
		t.Errorf("%d types, the schemas have %d", len(Types()), len(types))
	}
	for _, s := range short(t) {
		p := projector(Filter{Workers: true}, "")
		list := records(t, s)
		for i := range list {
			for _, f := range project(t, p, list[i:i+1]) {
				if bytes.Contains(f.data, []byte(`"type":"custom.`)) ||
					bytes.Contains(f.data, []byte(`"type":"route.decided"`)) || bytes.Contains(f.data, []byte(`"type":"skill.`)) {
					// as producers have written them
					continue
				}
				if err := metistest.Valid(f.data); err != nil {
					t.Fatalf("%s: %v", s.Name, err)
				}
			}
			if i%29 == 0 {
				snap, err := p.AppendSnapshot(nil, walk(list[:i+1]))
				if err == nil {
					err = metistest.Valid(snap)
				}
				if err != nil {
					t.Fatalf("%s: %v", s.Name, err)
				}
			}
		}
	}
	for _, frame := range [][]byte{Subscribe{Filter: Chat(), Since: "evt_x"}.AppendAck(nil, 7),
		AppendSubscribeError(nil, CodeInvalidFilter, "why")} {
		if err := metistest.Valid(frame); err != nil {
			t.Error(err)
		}
	}
}

// TestSnapshotAndRest: a snapshot folded with the rest is the fold of the whole: each message of the assistant that the
// snapshot has, or that comes behind it, is shown as to who was there from the beginning.
func TestSnapshotAndRest(t *testing.T) {
	t.Parallel()
	feed := func(f *metistest.Fold, frames []told) {
		for _, frame := range frames {
			if err := f.Frame(frame.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	compared := 0
	for _, s := range short(t) {
		list := records(t, s)
		whole := metistest.Fold{Session: schematest.Root}
		feed(&whole, project(t, projector(Filter{}, ""), list))
		byID := map[string]*metistest.ClientMessage{}
		for _, m := range whole.Messages {
			byID[m.ID] = m
		}
		p := projector(Filter{}, "")
		for i := range list {
			project(t, p, list[i:i+1])
			if i%13 != 5 {
				continue
			}
			snap, err := p.AppendSnapshot(nil, walk(list))
			if err != nil {
				t.Fatal(err)
			}
			over := p.HasEnded() // which a snapshot does not say
			late := metistest.Fold{Session: schematest.Root}
			feed(&late, []told{{data: snap}})
			had := len(late.Messages)
			feed(&late, project(t, p.For(p.req).(*Projector), list[i+1:]))
			for n, m := range late.Messages {
				if m.Role != "assistant" {
					continue
				}
				for i, b := range m.Blocks { // the protocol streams nothing of others, and an input has its end alone
					if w := byID[m.ID].Blocks; m.Status == "partial" && (i >= len(w) || w[i] == nil) {
						m.Blocks[i] = nil
					} else if m.Status == "partial" && w[i]["input"] == nil {
						delete(b, "input")
					}
				}
				got, _ := json.Marshal(m)
				for w := byID[m.ID]; m.Status == "partial" && len(w.Blocks) < len(m.Blocks); {
					w.Blocks = append(w.Blocks, nil)
				}
				want, _ := json.Marshal(byID[m.ID])
				if compared++; string(got) != string(want) {
					t.Fatalf("%s: message %d of %d behind a snapshot at %d:\n%s, from the beginning\n%s", s.Name, n,
						had, i+1, got, want)
				}
			}
			if w := whole.Messages; len(w) > 0 &&
				!slices.ContainsFunc(late.Messages, func(m *metistest.ClientMessage) bool { return m.ID == w[len(w)-1].ID }) {
				t.Fatalf("%s: behind a snapshot at %d the newest message is missing", s.Name, i+1)
			}
			if late.Turn != nil && *late.Turn != *whole.Turn || !over && late.Ended != whole.Ended {
				t.Fatalf("%s: behind a snapshot at %d: turn %v, ended %q", s.Name, i+1, late.Turn, late.Ended)
			}
		}
	}
	if compared < 2_000 {
		t.Errorf("only %d messages were compared", compared)
	}
}
