package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentstream/schema"
)

const recordings = "../../../shared/recordings"

// recorded gives the expectations of the recorded streams and a way to read one.
func recorded(t testing.TB) (map[string]expectation, func(string) []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(recordings, "expected.json"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the recordings are missing: %v", err)
		}
		t.Skipf("NOT TESTED AGAINST RECORDED STREAMS: %v", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]expectation)
	for name, v := range all {
		if !strings.HasPrefix(name, "anthropic/") {
			continue
		}
		var e expectation
		if err := json.Unmarshal(v, &e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want[name] = e
	}
	if len(want) < 19 {
		t.Fatalf("only %d recordings", len(want))
	}
	return want, func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(recordings, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

type expectation struct {
	MessageIDs                       []string `json:"messageIds"`
	Models                           []string
	Text, Reasoning                  digest
	Signatures                       int
	ToolCalls, OpenToolCalls         []call
	Blocks                           []struct{ Type string }
	StopReason, StopSequence         *string
	StopDetails, Usage, Error        any
	Framing                          struct{ Frames int }
	OpenBlocksAtEnd, AbandonedBlocks int
}

type digest struct {
	Bytes, Chars int
	SHA256       string `json:"sha256"`
}

type call struct {
	ID, Name, Kind string
	Input          any
	InputComplete  bool
	RawInput       digest
}

func digestOf(s string) digest {
	sum := sha256.Sum256([]byte(s))
	return digest{len(s), len([]rune(s)), hex.EncodeToString(sum[:])}
}

// outcome is what a reader of the canonical events knows in the end.
type outcome struct {
	messages        []string
	models          []string
	text, reasoning string
	calls, open     []call
	kinds           []string
	signatures      int
	stop, sequence  *string
	details, usage  any
	err             any
}

// fromFold puts the events together as any reader of the log does.
func fromFold(t testing.TB, events []schema.Event) outcome {
	t.Helper()
	var f schema.Fold
	var o outcome
	kind := map[string]string{}
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		if e.Type != schema.TypeToolStart && e.Type != schema.TypeBlockEnd && e.Type != schema.TypeMessageEnd {
			continue
		}
		p := object(t, e.Payload)
		switch e.Type {
		case schema.TypeToolStart:
			kind[p["call_id"].(string)] = p["kind"].(string)
		case schema.TypeBlockEnd:
			if p["signature"] != nil {
				o.signatures++
			}
		case schema.TypeMessageEnd:
			o.stop, o.sequence, o.details, o.usage = text(p["stop_reason"]), text(p["stop_sequence"]), p["stop_details"], p["usage"]
			if p["error"] != nil {
				o.err = p["error"]
			}
		}
	}
	o.text, o.reasoning = f.Text("", "text"), f.Text("", "reasoning")
	for _, m := range f.Messages {
		if m.End == 0 {
			t.Errorf("message %s is not closed", m.ID)
		}
		o.messages, o.models = append(o.messages, m.ID), append(o.models, m.Model)
		for _, b := range m.Blocks {
			o.kinds = append(o.kinds, strings.Replace(b.Kind, "reasoning", "thinking", 1))
			if b.Call == "" || b.Tool == "" {
				continue
			}
			c := call{ID: b.Call, Name: b.Tool, Kind: b.Kind, InputComplete: b.Complete, RawInput: digestOf(b.Text.String())}
			if !b.Complete {
				o.open = append(o.open, c)
				continue
			}
			if kind[b.Call] != b.Kind {
				t.Errorf("tool.start says kind %q, block.start %q", kind[b.Call], b.Kind)
			}
			c.Input = value(t, b.Input)
			o.calls = append(o.calls, c)
		}
	}
	for _, c := range f.Calls {
		if i := indexOf(o.calls, c.ID); i >= 0 && !reflect.DeepEqual(value(t, c.Input), o.calls[i].Input) {
			t.Errorf("tool.start of %s has another input", c.ID)
		}
	}
	return o
}

func indexOf(calls []call, id string) int {
	for i, c := range calls {
		if c.ID == id {
			return i
		}
	}
	return -1
}

// fromContent reads message.end alone, which is what a reader has that skipped the deltas.
func fromContent(t testing.TB, events []schema.Event) outcome {
	t.Helper()
	var o outcome
	for _, e := range events {
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		for _, item := range object(t, e.Payload)["content"].([]any) {
			b := item.(map[string]any)
			kind := b["type"].(string)
			o.kinds = append(o.kinds, kind)
			switch {
			case kind == "text":
				o.text += b["text"].(string)
			case kind == "thinking":
				o.reasoning += b["thinking"].(string)
				if b["signature"] != nil && b["signature"] != "" {
					o.signatures++
				}
			case strings.HasSuffix(kind, "tool_use"):
				c := call{ID: b["id"].(string), Name: b["name"].(string), Kind: kind, Input: b["input"]}
				if partial, cut := b["partial_json"]; cut {
					c.RawInput, c.Input = digestOf(partial.(string)), nil
					o.open = append(o.open, c)
				} else {
					o.calls = append(o.calls, c)
				}
			}
		}
	}
	return o
}

func object(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	m, ok := value(t, raw).(map[string]any)
	if !ok {
		t.Fatalf("not an object: %.200s", raw)
	}
	return m
}

func value(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.200s", err, raw)
	}
	return v
}

func text(v any) *string {
	if s, ok := v.(string); ok {
		return &s
	}
	return nil
}

// TestRecordings holds the canonical events of every recorded stream to what the provider's own
// client libraries make of it.
func TestRecordings(t *testing.T) {
	want, read := recorded(t)
	for name, w := range want {
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			events := decodeAll(t, read(name))
			checkEvents(t, events)
			folded, content := fromFold(t, events), fromContent(t, events)
			for how, got := range map[string]outcome{"fold": folded, "content": content} {
				if d := digestOf(got.text); d != w.Text {
					t.Errorf("%s: text %+v, want %+v", how, d, w.Text)
				}
				if d := digestOf(got.reasoning); d != w.Reasoning {
					t.Errorf("%s: reasoning %+v, want %+v", how, d, w.Reasoning)
				}
				if got.signatures != w.Signatures {
					t.Errorf("%s: %d signatures, want %d", how, got.signatures, w.Signatures)
				}
				compareCalls(t, how, got, w)
			}
			if !reflect.DeepEqual(folded.messages, w.MessageIDs) || !reflect.DeepEqual(folded.models, w.Models) {
				t.Errorf("messages %v of %v, want %v of %v", folded.messages, folded.models, w.MessageIDs, w.Models)
			}
			var kinds []string
			for _, b := range w.Blocks {
				kinds = append(kinds, b.Type)
			}
			if n := len(folded.kinds) - w.OpenBlocksAtEnd; !reflect.DeepEqual(folded.kinds[:n], kinds) || !reflect.DeepEqual(content.kinds, folded.kinds) {
				t.Errorf("blocks %v\ncontent %v\nwant %v", folded.kinds, content.kinds, kinds)
			}
			if !reflect.DeepEqual(folded.stop, w.StopReason) || !reflect.DeepEqual(folded.sequence, w.StopSequence) || !reflect.DeepEqual(folded.details, w.StopDetails) {
				t.Errorf("stop %v %v %v", folded.stop, folded.sequence, folded.details)
			}
			if !reflect.DeepEqual(folded.usage, w.Usage) {
				t.Errorf("usage\n got %v\nwant %v", folded.usage, w.Usage)
			}
			if !reflect.DeepEqual(folded.err, w.Error) {
				t.Errorf("error %v, want %v", folded.err, w.Error)
			}
		})
	}
}

func compareCalls(t *testing.T, how string, got outcome, w expectation) {
	t.Helper()
	if len(got.calls) != len(w.ToolCalls) || len(got.open) != len(w.OpenToolCalls) {
		t.Fatalf("%s: %d calls and %d open, want %d and %d", how, len(got.calls), len(got.open), len(w.ToolCalls), len(w.OpenToolCalls))
	}
	for i, c := range got.calls {
		wc := w.ToolCalls[i]
		if how == "content" { // it has the input, not its spelling
			c.RawInput, c.InputComplete = wc.RawInput, wc.InputComplete
		}
		if !reflect.DeepEqual(c, wc) {
			t.Errorf("%s: call %d\n got %+v\nwant %+v", how, i, c, wc)
		}
	}
	for i, c := range got.open {
		if !reflect.DeepEqual(c, w.OpenToolCalls[i]) {
			t.Errorf("%s: open call %d\n got %+v\nwant %+v", how, i, c, w.OpenToolCalls[i])
		}
	}
}

// TestRecordedResults: the answers of the provider's own tools are there, one for each call that
// the recording answers, with their content untouched.
func TestRecordedResults(t *testing.T) {
	want, read := recorded(t)
	for name, w := range want {
		results := 0
		for _, b := range w.Blocks {
			if strings.HasSuffix(b.Type, "_tool_result") {
				results++
			}
		}
		for _, e := range decodeAll(t, read(name)) {
			if e.Type != schema.TypeToolEnd {
				continue
			}
			results--
			p := object(t, e.Payload)
			if p["ok"] != true || p["call_id"] == "" || p["output"] == nil {
				t.Errorf("%s: %.200s", name, e.Payload)
			}
		}
		if results != 0 {
			t.Errorf("%s: %d results are missing", name, results)
		}
	}
}

// TestPieces: the size of the pieces in which a body comes changes nothing.
func TestPieces(t *testing.T) {
	want, read := recorded(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for name := range want {
		data := read(name)
		whole := lines(decodeAll(t, data))
		for _, most := range []int{1, 7, 4096} {
			d := NewDecoder(Config{})
			var events []schema.Event
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(most))
				more, err := d.Write(rest[:n])
				if err != nil {
					t.Fatal(err)
				}
				events, rest = append(events, more...), rest[n:]
			}
			if got := lines(append(events, d.Close()...)); got != whole {
				t.Fatalf("%s in pieces of up to %d bytes differs", name, most)
			}
		}
	}
}

func lines(events []schema.Event) string {
	var b []byte
	for i := range events {
		b = append(events[i].AppendLine(b), '\n')
	}
	return string(b)
}

// TestCuts ends the recorded streams where a broken connection may end them: at every byte of the
// small files, at random ones of the others.
func TestCuts(t *testing.T) {
	want, read := recorded(t)
	small := map[string]bool{"anthropic/text-short.sse": true, "anthropic/stop-sequence.sse": true, "anthropic/truncated-tool-json-max-tokens.sse": true,
		"anthropic/parallel-tools-step1.sse": true}
	for name := range want {
		data := read(name)
		rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
		offsets := make([]int, 0, len(data))
		for i := range len(data) + 1 {
			offsets = append(offsets, i)
		}
		if !small[name] {
			rng.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
			offsets = offsets[:200]
			if testing.Short() {
				offsets = offsets[:20]
			}
		}
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			t.Parallel()
			whole := fromFold(t, decodeAll(t, data))
			for _, at := range offsets {
				checkCut(t, whole, data[:at])
			}
		})
	}
}

// checkCut holds the events of a stream that was cut to those of the whole one.
func checkCut(t *testing.T, whole outcome, data []byte) {
	t.Helper()
	at := len(data)
	events := decodeAll(t, data)
	for i := range events {
		if err := events[i].CheckNew("run_1"); err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	got := fromFold(t, events)
	if !strings.HasPrefix(whole.text, got.text) || !strings.HasPrefix(whole.reasoning, got.reasoning) || len(got.calls) > len(whole.calls) {
		t.Fatalf("cut at %d: %q is no beginning", at, got.text)
	}
	if c := fromContent(t, events); c.text != got.text || c.reasoning != got.reasoning || len(c.calls) != len(got.calls) {
		t.Fatalf("cut at %d: content says %q, deltas %q", at, c.text, got.text)
	}
	if got.stop == nil && len(got.messages) > 0 && got.err == nil {
		t.Fatalf("cut at %d: nothing says that the message is incomplete", at)
	}
}
