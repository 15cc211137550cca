package timeline

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write golden files")

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (make golden writes it):\n%s", path, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n got %q\nwant %q", i+1, a, b)
		}
	}
	return "nothing"
}

// told returns a scenario's events as a reader gets them, 250 ms apart.
func told(t *testing.T, name string) []schema.Event {
	t.Helper()
	events := append([]schema.Event(nil), schematest.ByName(name).Events...)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range events {
		e := &events[i]
		e.RunID, e.Seq, e.ID = "run_golden", schema.Seq(i+1), fmt.Sprintf("evt_%d", i+1)
		e.TS = at.Add(time.Duration(i) * 250 * time.Millisecond).Format(schema.TimeLayout)
	}
	return events
}

// show renders events on a screen.
func show(t *testing.T, s terminal.Screen, events []schema.Event) string {
	t.Helper()
	var b bytes.Buffer
	tl := newTimeline(&b, s)
	for i := range events {
		if err := tl.event(nil, &events[i]); err != nil {
			t.Fatal(err)
		}
		if err := tl.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tl.close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func columnsOf(n int) func() int { return func() int { return n } }

// The three looks: piped, on a terminal (what stands on the screen in the end), and the bytes that
// are sent to a coloured one.
func TestTimelineGolden(t *testing.T) {
	for _, sc := range schematest.All() {
		if sc.Name == "long" { // thousands of deltas say no more than a few
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			events := told(t, sc.Name)
			golden(t, ""+sc.Name+".txt", show(t, terminal.Screen{}, events))
			sent := show(t, terminal.Screen{Terminal: true, Color: true, Width: columnsOf(64)}, events)
			golden(t, ""+sc.Name+".screen", emulate(t, sent, 64))
		})
	}
	sent := show(t, terminal.Screen{Terminal: true, Color: true, Width: columnsOf(64)}, told(t, "children"))
	golden(t, "children.sent", strings.ReplaceAll(sent, "\x1b", `\e`))
}

// emulate is a terminal that knows what the pen may send, and nothing else: anything else is a
// failure, and so is a line that is longer than width (0: no bound). It returns the screen's lines
// without trailing space.
func emulate(t testing.TB, sent string, width int) string {
	t.Helper()
	var lines []string
	var cells []string // of the line; a wide rune is followed by an empty cell
	col := 0
	for i := 0; i < len(sent); {
		if m := escape.FindStringSubmatch(sent[i:]); m != nil {
			i += len(m[0])
			switch m[2] {
			case "G":
				n, err := strconv.Atoi(m[1])
				if err != nil || n < 1 || n > len(cells)+1 {
					t.Fatalf("cursor to column %q of %d", m[1], len(cells))
				}
				col = n - 1
			case "K":
				cells = cells[:col]
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(sent[i:])
		if terminal.Hostile(r) || r == '\t' || r == utf8.RuneError && n == 1 {
			t.Fatalf("sent %q behind %q", r, sent[max(0, i-30):i])
		}
		i += n
		w := terminal.RuneColumns(r)
		switch {
		case r == '\n':
			lines = append(lines, strings.TrimRight(strings.Join(cells, ""), " "))
			cells, col = cells[:0], 0
			continue
		case width > 0 && col+w > width:
			t.Fatalf("more than %d columns: %q and %q", width, cells, r)
		case w == 0 && col == 0:
			t.Fatalf("nothing for %q to stand on", r)
		case w == 0:
			cells[col-1] += string(r)
			continue
		}
		cells = append(cells[:col], string(r))
		if w == 2 {
			cells = append(cells, "")
		}
		col += w
	}
	if len(cells) > 0 {
		t.Fatalf("last line has no end: %q", cells)
	}
	return strings.Join(lines, "\n") + "\n"
}

var escape = regexp.MustCompile(`^\x1b\[([0-9;]*)([mGK])`)

// However the network and the model cut a text, the screen looks the same in the end.
func TestTimelineLooksTheSameHoweverTextIsCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole := rapid.StringOfN(rapid.RuneFrom([]rune("abc  \n\r\tä漢字🙂\x1b\x00\u202e-")), 0, 200, -1).Draw(rt, "text")
		width := rapid.IntRange(0, 60).Draw(rt, "width")
		delta := func(s string) schema.Event {
			p, _ := json.Marshal(map[string]string{"text": s})
			return schema.Event{Type: schema.TypeTextDelta, Payload: p}
		}
		var cut []schema.Event
		rest := []rune(whole)
		for len(rest) > 0 {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			cut = append(cut, delta(string(rest[:n])))
			rest = rest[n:]
		}
		if len(cut) == 0 {
			return
		}
		s := terminal.Screen{Terminal: true, Color: true, Width: columnsOf(width)}
		one, many := show(t, s, []schema.Event{delta(whole)}), show(t, s, cut)
		if one != many {
			rt.Fatalf("sent %q, want %q", many, one)
		}
		limit := width
		if width < clockColumns+glyphColumns+minText {
			limit = 0
		}
		emulate(t, many, limit)
	})
}

// Words are not parted while they fit on a line, and every letter arrives.
func TestTimelineWrapsAtWords(t *testing.T) {
	words := strings.Fields("the quick brown fox jumps over the lazy dog and a_word_that_is_longer_than_any_line_of_this_screen ends it")
	var events []schema.Event
	for _, r := range strings.Join(words, " ") {
		p, _ := json.Marshal(map[string]string{"text": string(r)})
		events = append(events, schema.Event{Type: schema.TypeTextDelta, Payload: p})
	}
	screen := emulate(t, show(t, terminal.Screen{Terminal: true, Width: columnsOf(40)}, events), 40)
	golden(t, "wrap.screen", screen)
	if got := strings.Join(strings.Fields(screen), ""); got != strings.Join(words, "") {
		t.Errorf("screen has %q", got)
	}
}

func TestTimelineHostilePayloads(t *testing.T) {
	for _, typ := range schema.Types() {
		for _, payload := range []string{
			`{}`, `{"text":"\u001b[2J\u0007\u009b31m"}`, `{"text":7}`,
			`{"call_id":"\u001b]0;x\u0007","tool":"\u001b[1A","input":{"\u001b[2J":"\r\n"},"output":"\u001b[2J","ok":false,"error":{"message":"\u001b"}}`,
			`{"plan":null}`, `{"plan":{"steps":[{"title":"\u001b","intent":"\u001b","est_tools":["\u001b"]}]}}`,
			`{"plan":{"steps":7}}`,
			`{"state":"\u001b[31m","reason":"\u001b"}`, `{"child_id":"\u001b","prompt":"\u202e","tools_allowed":["\u001b"]}`,
			`{"kind":"\u001b","role":"\u001b","model":"\u001b","stop_reason":"\u001b","usage":{"input_tokens":"\u001b"},"content":[{"type":"text","text":"\u001b"}]}`,
			`{"prompt":"\u001b","options":["\u001b"],"answer":"\u001b","message":"\u001b","instruction":"\u001b","media_type":"\u001b","data":"\u001b","blob_ref":"\u001b","step_kind":"\u001b"}`,
			`{"duration_ms":-1e300,"done":1e300,"total":-0}`, `{"index":-5,"step_index":-9}`,
		} {
			e := schema.Event{Type: typ.Name, ChildID: "c1", Actor: "\x1b", Payload: json.RawMessage(payload)}
			emulate(t, show(t, terminal.Screen{Terminal: true, Color: true, Width: columnsOf(50)}, []schema.Event{e, e}), 50)
		}
	}
}

func FuzzTimeline(f *testing.F) {
	f.Add("text.delta", "c1", `{"text":"a\u001b b"}`, uint8(40))
	f.Add("tool.end", "", `{"call_id":"x","ok":true,"output":"1\n2\r3"}`, uint8(30))
	f.Fuzz(func(t *testing.T, typ, child, payload string, width uint8) {
		if !json.Valid([]byte(payload)) || schema.ValidRunID(child) != nil && child != "" {
			t.Skip()
		}
		if _, err := schema.Lookup(typ); err != nil {
			t.Skip()
		}
		e := schema.Event{Type: typ, ChildID: child, Payload: json.RawMessage(payload)}
		w := int(width)
		s := terminal.Screen{Terminal: true, Color: true, Width: columnsOf(w)}
		limit := w
		if w < clockColumns+2*4+glyphColumns+minText {
			limit = 0
		}
		emulate(t, show(t, s, []schema.Event{e, e}), limit)
	})
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{0, "0.000s"}, {59999 * time.Millisecond, "59.999s"}, {time.Minute, "1m00.0s"},
		{59*time.Minute + 59990*time.Millisecond, "59m59.9s"},
		{time.Hour, "1h00m00s"}, {99*time.Hour + time.Minute + time.Second, "99h01m01s"}, {-5 * time.Second, "-5.000s"},
	} {
		if got := clock(c.in); got != c.want {
			t.Errorf("%v: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestTimelineContent: what a message says as a whole is shown in the order of its blocks, each call once, where it was
// asked for.
func TestTimelineContent(t *testing.T) {
	content := `{"message_id":"m","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"search","input":{"q":"x"}},` +
		`{"type":"thinking","thinking":"hm"},{"type":"text","text":"And "},{"type":"text","text":"again."},{"type":"tool_use","id":"b","name":"open","input":{}}]}`
	start := func(id, tool, input string) schema.Event {
		return schema.Event{Type: "tool.start",
			Payload: json.RawMessage(`{"call_id":"` + id + `","tool":"` + tool + `","input":` + input + `}`)}
	}
	end := func(id string) schema.Event {
		return schema.Event{Type: "tool.end", Payload: json.RawMessage(`{"call_id":"` + id + `","ok":true}`)}
	}
	message := schema.Event{Type: "message.end", Payload: json.RawMessage(content)}
	for _, tt := range []struct {
		events []schema.Event
		want   string
	}{
		{[]schema.Event{message, start("a", "search", `{"q":"x"}`), end("a"), start("b", "open", `{}`), end("b"),
			start("a", "search", `{"q":"y"}`)},
			"I look. | ▶ search(q=\"x\") | ~ hm | And again. | ▶ open() | ✓ search | ✓ open | ▶ search(q=\"y\")"},
		{[]schema.Event{start("a", "search", `{"q":"x"}`), end("a"), message, start("b", "open", `{}`)},
			"▶ search(q=\"x\") | ✓ search | I look. | ~ hm | And again. | ▶ open()"},
	} {
		var got []string
		for line := range strings.Lines(show(t, terminal.Screen{}, tt.events)) {
			got = append(got, strings.TrimSpace(line))
		}
		if all := strings.Join(got, " | "); all != tt.want {
			t.Errorf("got  %s\nwant %s", all, tt.want)
		}
	}
}
