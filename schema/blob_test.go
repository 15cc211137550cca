package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestValidBlobRef(t *testing.T) {
	good := BlobRef(sha256.Sum256([]byte("x")))
	if err := ValidBlobRef(good); err != nil || len(good) != len(BlobPrefix)+64 {
		t.Errorf("%s: %v", good, err)
	}
	for _, bad := range []string{"", "blob_", "blob_1", good[:len(good)-1], good + "0", strings.ToUpper(good),
		"x" + good[1:], good[:len(good)-1] + "*", good[:len(good)-1] + "G", strings.Repeat("f", 69)} {
		if err := ValidBlobRef(bad); !errors.Is(err, ErrNoBlob) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Large values of an output, as they may stand.
func largeOutputs() map[string]string {
	fill := strings.Repeat("x", MaxEventBytes)
	return map[string]string{
		"plain":      `"` + fill + `"`,
		"escapes":    `"\"\\\/\n\u00e4\ud83d\ude00` + strings.Repeat(`\ud83d\ude00`, MaxEventBytes/12) + `"`,
		"umlauts":    `"` + strings.Repeat("äöü😀", MaxEventBytes/10) + `"`,
		"half pairs": `"` + strings.Repeat(`\ud83d`, MaxEventBytes/6) + `"`,
		"object":     `{"output":"not this","blob_ref":"nor this","a":"` + fill + `"}`,
		"numbers":    `[` + strings.Repeat("1.10,", MaxEventBytes/5) + `12345678901234567890]`,
	}
}

// What was moved and what is left are together what there was, in every form of a body.
func TestMove(t *testing.T) {
	small := `{"type":"text.delta","payload":{"text":"x"}}`
	for name, output := range largeOutputs() {
		for place, event := range map[string]string{
			"middle": `{"type":"tool.end","payload":{"call_id":"c","output":%s,"ok":true}}`,
			"first":  `{"payload":{"output" : %s , "call_id":"c","ok":true},"own":{"output":1},"type":"tool.end"}`,
			"last":   `{"type":"tool.end","child_id":"kid","payload":{"call_id":"c","ok":true,"output":%s}}`,
			"name":   `{"type":"tool.end","payload":{"call_id":"c","ok":true,"out\u0070ut":%s}}`,
		} {
			if name != "plain" && place != "middle" {
				continue
			}
			large := fmt.Sprintf(event, output)
			for form, body := range map[string]string{
				"one": large, "lines": small + "\r\n\n" + large + "\n" + large + "\n" + small,
				"array":   " [" + large + "," + small + "]",
				"printed": strings.ReplaceAll(large, `"payload":`, "\n\"payload\":\n"),
			} {
				before := []byte(body)
				slim, moved := Move(before)
				want := strings.Count(body, output)
				if string(before) != body || len(moved) != want || len(slim) > 10<<10 {
					t.Fatalf("%s %s %s: %d moved of %d, %d bytes are left", name, place, form, len(moved), want, len(slim))
				}
				events, err := DecodeBatch("run", slim)
				if err != nil || len(events) != 1 && len(events) != 2 && len(events) != 4 {
					t.Fatalf("%s %s %s: %d events: %v: %s", name, place, form, len(events), err, slim)
				}
				for i := range events {
					if e := &events[i]; e.Type == TypeToolEnd {
						checkMoved(t, e, moved[0], output)
					}
				}
				again, _ := Move([]byte(body))
				if !bytes.Equal(again, slim) {
					t.Errorf("%s %s %s: not the same twice", name, place, form)
				}
			}
		}
	}
}

func checkMoved(t *testing.T, e *Event, m Moved, output string) {
	t.Helper()
	var p struct {
		Call    string          `json:"call_id"`
		OK      bool            `json:"ok"`
		Output  json.RawMessage `json:"output"`
		Ref     string          `json:"blob_ref"`
		Bytes   int             `json:"output_bytes"`
		Preview string          `json:"output_preview"`
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	if p.Call != "c" || !p.OK || p.Output != nil || p.Bytes != len(output) || string(m.Data) != output ||
		p.Ref != m.Ref || m.Ref != BlobRef(sha256.Sum256([]byte(output))) {
		t.Errorf("%+v of %d bytes, moved %s", p, len(output), m.Ref)
	}
	whole := output
	if output[0] == '"' {
		if err := json.Unmarshal([]byte(output), &whole); err != nil {
			t.Fatal(err)
		}
	}
	if !utf8.ValidString(p.Preview) || !strings.HasPrefix(whole, p.Preview) || len(p.Preview) > maxPreview {
		t.Errorf("preview %.100q of %.100q", p.Preview, whole)
	}
}

// What is no large output is left as it is, byte by byte.
func TestMoveLeaves(t *testing.T) {
	output := largeOutputs()["plain"]
	for name, body := range map[string]string{
		"small":         `{"type":"tool.end","payload":{"call_id":"c","ok":true,"output":1}}`,
		"other type":    `{"type":"custom.x","payload":{"output":` + output + `}}`,
		"other field":   `{"type":"tool.end","payload":{"call_id":"c","ok":true,"error":` + output + `}}`,
		"other level":   `{"type":"tool.end","output":` + output + `}`,
		"nested":        `{"type":"tool.end","payload":{"call_id":"c","ok":true,"own":{"output":` + output + `}}}`,
		"two":           `{"type":"tool.end","payload":{"output":1,"output":` + output + `}}`,
		"told already":  `{"type":"tool.end","payload":{"blob_ref":null,"output":` + output + `}}`,
		"no JSON":       `{"type":"tool.end","payload":{"output":` + output + `}`,
		"bad UTF-8":     `{"type":"tool.end","payload":{"a":"` + "\xff" + `","output":` + output + `}}`,
		"payload list":  `{"type":"tool.end","payload":["output",` + output + `]}`,
		"type a number": `{"type":7,"payload":{"output":` + output + `}}`,
		"many small":    strings.Repeat(`{"type":"tool.end","payload":{"call_id":"c","ok":true,"output":1}}`+"\n", 20_000),
		"garbage":       strings.Repeat("[", MaxEventBytes+1),
	} {
		slim, moved := Move([]byte(body))
		if string(slim) != body || moved != nil {
			t.Errorf("%s: %d moved, %d bytes of %d", name, len(moved), len(slim), len(body))
		}
	}
}
