package metistest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write the states of the conformance suite")

// shown is the state of a case.
type shown struct {
	State
	Last     string   `json:"last"`
	Replaced []string `json:"replaced"`
	Skipped  int      `json:"skipped"`
}

// TestConformance: every frame is valid, and leads to the state that its case has.
func TestConformance(t *testing.T) {
	all, err := Cases()
	if err != nil || len(all) < 30 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			f := Fold{Session: c.Session}
			for _, frame := range c.Frames {
				if err := Valid(frame); err != nil && c.Name != "unknown-frame.json" {
					t.Error(err)
				}
				if err := f.Frame(frame); err != nil {
					t.Fatal(err)
				}
			}
			got, err := json.Marshal(shown{f.State, f.Last, f.Replaced, f.Skipped})
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				writeState(t, c.Name, got)
				return
			}
			var g, w any
			if json.Unmarshal(got, &g) != nil || json.Unmarshal(c.State, &w) != nil || !reflect.DeepEqual(g, w) {
				t.Errorf("shown is\n%s\nwant\n%s", got, c.State)
			}
		})
	}
}

func writeState(t *testing.T, name string, state []byte) {
	t.Helper()
	path := "conformance/" + name
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(file, []byte("\n  \"state\": "))
	if err := os.WriteFile(path, append(head, "\n  \"state\": "+string(state)+"\n}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestInvalid: the schemas refuse what the text does not allow.
func TestInvalid(t *testing.T) {
	event := func(change string) string {
		return `{"type":"event","event":{"id":"evt_1","timestamp":"2026-05-08T12:00:00.000001Z","session_id":"s","turn_id":null,"parent_event_id":null,` +
			`"type":"text.delta","actor":"agent","payload":{"message_id":"m","content_block_index":0,"text":"x"},"sensitivity":"private"` + change + `}}`
	}
	if err := Valid([]byte(event(""))); err != nil {
		t.Fatal(err)
	}
	for _, frame := range []string{
		`[]`, `{"type":"hello"}`, `{"type":"pong"}`, `{"type":"subscribe_error","code":"no","message":"x"}`,
		event(`,"sensitivity":"secret"`), event(`,"actor":"robot"`), event(`,"more":1`),
		event(`,"timestamp":"2026-05-08T12:00:00Z"`),
		event(`,"payload":{"message_id":"m","text":"x"}`), event(`,"type":"turn.completed"`), event(`,"actor":"tool"`),
		event(`,"type":"turn.started","actor":"user","parent_event_id":"evt_0"`),
	} {
		if Valid([]byte(frame)) == nil {
			t.Errorf("valid: %s", frame)
		}
	}
	if all, err := Types(); err != nil || len(all) != 58 {
		t.Errorf("%d types, %v", len(all), err)
	}
}
