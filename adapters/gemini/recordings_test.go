package gemini

import (
	"math/rand/v2"
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
)

// TestRecordings holds the canonical events of every recorded answer to what is expected of it.
func TestRecordings(t *testing.T) {
	want, read := geminitest.Recordings(t)
	for name := range want {
		t.Run(strings.TrimPrefix(name, "gemini/"), func(t *testing.T) {
			events := decodeAll(t, read(name))
			checkEvents(t, events)
			geminitest.Check(t, name, events)
			for _, e := range events {
				if strings.HasPrefix(e.Type, "custom.") {
					t.Errorf("%s %.200s", e.Type, e.Payload)
				}
			}
		})
	}
}

// TestRecordedForms: the same chunks as a list, and unwrapped or wrapped, give the same events.
func TestRecordedForms(t *testing.T) {
	want, read := geminitest.Recordings(t)
	for name := range want {
		data := read(name)
		whole := providertest.Lines(decodeAll(t, data))
		var chunks []string
		for _, line := range strings.Split(string(data), "\n") {
			line = strings.TrimPrefix(strings.TrimSuffix(line, "\r"), "data: ")
			if line != "" {
				chunks = append(chunks, line)
			}
		}
		for form, body := range map[string]string{
			"list":    "[" + strings.Join(chunks, ",\r\n") + "\r\n]",
			"jsonl":   strings.Join(chunks, "\n"),
			"wrapped": "data: {\"response\":" + strings.Join(chunks, "}\r\n\r\ndata: {\"response\":") + "}\r\n\r\n",
		} {
			if got := providertest.Lines(decodeAll(t, []byte(body))); got != whole {
				t.Errorf("%s as %s differs", name, form)
			}
		}
	}
}

// TestPieces: the size of the pieces in which a body comes changes nothing.
func TestPieces(t *testing.T) {
	want, read := geminitest.Recordings(t)
	rng := rand.New(rand.NewPCG(1, 2))
	fresh := func() *provider.Decoder { return NewDecoder(provider.Config{}) }
	for name := range want {
		t.Run(strings.TrimPrefix(name, "gemini/"), func(t *testing.T) {
			for _, most := range []int{1, 7, 4096} {
				providertest.CheckPieces(t, fresh, read(name), func() int { return 1 + rng.IntN(most) })
			}
		})
	}
}

// TestCuts ends the recorded answers where a broken connection may end them: at every byte of three,
// at random ones of the others.
func TestCuts(t *testing.T) {
	want, read := geminitest.Recordings(t)
	every := map[string]bool{"gemini/text.sse": true, "gemini/code-execution.sse": true,
		"gemini/no-args-and-array-calls.jsonl": true}
	for name := range want {
		data := read(name)
		rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
		offsets := rng.Perm(len(data) + 1)
		if !every[name] {
			offsets = offsets[:200]
		}
		if testing.Short() {
			offsets = offsets[:20]
		}
		t.Run(strings.TrimPrefix(name, "gemini/"), func(t *testing.T) {
			t.Parallel()
			whole := geminitest.FromFold(t, decodeAll(t, data))[0]
			for _, at := range offsets {
				checkCut(t, whole, data[:at])
			}
		})
	}
}

// checkCut holds the events of an answer that was cut to those of the whole one.
func checkCut(t *testing.T, whole geminitest.GeminiOutcome, data []byte) {
	t.Helper()
	events := decodeAll(t, data)
	for i := range events {
		if err := events[i].CheckNew("run_1"); err != nil {
			t.Fatalf("cut at %d: %v", len(data), err)
		}
	}
	folded, content := geminitest.FromFold(t, events), geminitest.FromContent(t, events)
	if len(folded) == 0 {
		return
	}
	got, c := folded[0], content[0]
	if !strings.HasPrefix(whole.Text, got.Text) || !strings.HasPrefix(whole.Reasoning, got.Reasoning) ||
		len(got.Calls) > len(whole.Calls) {
		t.Fatalf("cut at %d: %q is no beginning", len(data), got.Text)
	}
	if c.Text != got.Text || c.Reasoning != got.Reasoning || len(c.Calls) != len(got.Calls) ||
		len(c.Open) != len(got.Open) {
		t.Fatalf("cut at %d: content says %q, deltas %q", len(data), c.Text, got.Text)
	}
	if got.Finish == nil && got.Err == nil {
		t.Fatalf("cut at %d: nothing says that the message is incomplete", len(data))
	}
}
