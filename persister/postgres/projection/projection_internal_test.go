package projection

import (
	"strings"
	"testing"
	"time"

	"agentstream/schema"
)

// Usage comes under the names of each provider, and what was read from a cache is no input.
func TestTokens(t *testing.T) {
	for payload, want := range map[string]tokens{
		`{}`:          {cost: unknown},
		`nonsense`:    {cost: unknown},
		`{"usage":7}`: {cost: unknown},
		`{"usage":{"input_tokens":10,"output_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":2}}`:   {true, 10, 3, 4, 2, unknown},
		`{"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`:              {true, 6, 3, 4, 0, unknown},
		`{"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":4}}}`:                                       {true, 0, 0, 4, 0, unknown},
		`{"usage":{"promptTokenCount":10,"candidatesTokenCount":3,"thoughtsTokenCount":5,"cachedContentTokenCount":1}}`: {true, 9, 8, 1, 0, unknown},
		`{"usage":{"input_tokens":1.5,"output_tokens":-2,"cost":"3"}}`:                                                  {true, 0, 0, 0, 0, unknown},
		`{"usage":{"input_tokens":1,"total_cost_usd":0.25}}`:                                                            {true, 1, 0, 0, 0, 0.25},
	} {
		if got := tokensOf(peek([]byte(payload))); got != want {
			t.Errorf("%s: %+v, want %+v", payload, got, want)
		}
	}
}

// Texts that no column holds are changed, long ones are cut at a character, and long ids stay apart.
func TestTexts(t *testing.T) {
	long := strings.Repeat("é", 150)
	p := peek([]byte(`{"nul":"a\u0000b","half":"\ud800","n":5,"long":"` + long + `","twice":"a","twice":"b"}`))
	for name, want := range map[string]string{"nul": "a\uFFFDb", "half": "\uFFFD", "n": "", "none": "", "twice": "b",
		"long": strings.Repeat("é", 100)} {
		if got := p.name(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	one, other := peek([]byte(`{"id":"`+long+`1"}`)).id("id"), peek([]byte(`{"id":"`+long+`2"}`)).id("id")
	if one == other || len(one) > maxName {
		t.Errorf("ids of %d bytes, the same: %v", len(one), one == other)
	}
}

// Each event makes the rows of its tables, in the order in which they must be stored, and nothing is stored of others.
func TestFrames(t *testing.T) {
	at := &Place{Key: schema.RunKey{Tenant: "acme", Run: "run"}, TS: time.Unix(1, 0), Seq: 7}
	tables := func(text string) string {
		_, rest, _ := strings.Cut(strings.TrimSpace(text), "agent_run_")
		table, _, _ := strings.Cut(rest, " ")
		return strings.Fields(text)[0] + " " + table
	}
	for typ, want := range map[string][]string{
		schema.TypeCommandMessage: {"insert messages"},
		schema.TypeMessageStart:   {"insert messages", "update usage"},
		schema.TypeMessageEnd:     {"insert messages", "insert usage"},
		schema.TypeToolStart:      {"insert tool_calls", "update tool_calls"},
		schema.TypeToolEnd:        {"insert tool_calls"},
		schema.TypeTextDelta:      nil,
	} {
		if IsFrame(typ) != (want != nil) {
			t.Errorf("%s is a frame: %v", typ, IsFrame(typ))
		}
		var f Frames
		f.Add(at, typ, []byte(`{"message_id":"m","call_id":"c","tool":"t","ok":true}`))
		var got []string
		f.Each(func(text string, args ...any) {
			got = append(got, tables(text))
			if n := strings.Count(text, "[]"); n != len(args) {
				t.Errorf("%s: %d arguments for %d columns", typ, len(args), n)
			}
		})
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
}

// TestNewFrames: what is new to a run corrects nothing that is stored, and is looked up by its id alone. What is not, or
// what comes twice in a batch, is looked at closely.
func TestNewFrames(t *testing.T) {
	stored := func(isNew bool, types ...string) (updates, probes, searches int) {
		var f Frames
		for i, typ := range types {
			at := &Place{Key: schema.RunKey{Tenant: "acme", Run: "run"}, TS: time.Unix(1, 0), Seq: schema.Seq(i + 1), New: isNew}
			f.Add(at, typ, []byte(`{"message_id":"m","call_id":"c","tool":"t","ok":true}`))
		}
		f.Each(func(text string, _ ...any) { updates += strings.Count(text, "update ") })
		found := f.Suspects()
		found.Probe(func(_ func(func(...any) error) error, text string, args ...any) {
			probes += len(args[0].([]string))
		})
		found.Find(func(_ func(func(...any) error) error, text string, args ...any) {
			searches += len(args[0].([]string))
		})
		return updates, probes, searches
	}
	both := []string{schema.TypeMessageStart, schema.TypeToolStart, schema.TypeToolEnd, schema.TypeMessageEnd}
	for what, c := range map[string]struct {
		isNew                     bool
		types                     []string
		updates, probes, searches int
	}{
		"new":       {true, both, 0, 2, 0},
		"late":      {false, both, 2, 0, 4},
		"an end":    {true, both[3:], 0, 1, 0},
		"twice":     {true, append(both[:4:4], schema.TypeToolEnd), 0, 1, 3},
		"backwards": {true, []string{schema.TypeToolEnd, schema.TypeToolStart}, 0, 0, 2},
	} {
		updates, probes, searches := stored(c.isNew, c.types...)
		if updates != c.updates || probes != c.probes || searches != c.searches {
			t.Errorf("%s: %d updates, %d ids are looked up, %d searched", what, updates, probes, searches)
		}
	}
}
