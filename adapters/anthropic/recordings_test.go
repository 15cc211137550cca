package anthropic

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// TestRecordings holds the canonical events of every recorded stream to what the provider's own
// client libraries make of it.
func TestRecordings(t *testing.T) {
	want, read := anthropictest.Recordings(t)
	for name, w := range want {
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			events := decodeAll(t, read(name))
			providertest.CheckEvents(t, events)
			anthropictest.Check(t, events, w)
		})
	}
}

// TestRecordedResults: the answers of the provider's own tools are there, one for each call that
// the recording answers, with their content untouched.
func TestRecordedResults(t *testing.T) {
	want, read := anthropictest.Recordings(t)
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
			p := providertest.Object(t, e.Payload)
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
	want, read := anthropictest.Recordings(t)
	rng := rand.New(rand.NewPCG(1, 2))
	fresh := func() *provider.Decoder { return NewDecoder(provider.Config{}) }
	for name := range want {
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			for _, most := range []int{1, 7, 4096} {
				providertest.CheckPieces(t, fresh, read(name), func() int { return 1 + rng.IntN(most) })
			}
		})
	}
}

// TestCuts ends the recorded streams where a broken connection may end them: at every byte of those of up
// to 4 KB, at every third of those of up to 20 KB (all in the full form), at random ones of the others.
func TestCuts(t *testing.T) {
	want, read := anthropictest.Recordings(t)
	for name := range want {
		data := read(name)
		rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
		offsets, step := make([]int, 0, len(data)), 1
		if len(data) > 4<<10 && os.Getenv("AGENTSTREAM_FULL") == "" { // the race detector makes each cut dear
			step = 3
		}
		for i := 0; i <= len(data); i += step {
			offsets = append(offsets, i)
		}
		if len(data) > 20<<10 || testing.Short() && len(data) > 3<<10 {
			rng.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
			offsets = offsets[:min(200, len(offsets))]
			if testing.Short() {
				offsets = offsets[:min(20, len(offsets))]
			}
		}
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			t.Parallel()
			whole := anthropictest.FromFold(t, decodeAll(t, data))
			for _, at := range offsets {
				checkCut(t, whole, data[:at])
			}
		})
	}
}

// checkCut holds the events of a stream that was cut to those of the whole one.
func checkCut(t *testing.T, whole anthropictest.AnthropicOutcome, data []byte) {
	t.Helper()
	at := len(data)
	events := decodeAll(t, data)
	for i := range events {
		if err := events[i].CheckNew("run_1"); err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	got := anthropictest.FromFold(t, events)
	if !strings.HasPrefix(whole.Text, got.Text) || !strings.HasPrefix(whole.Reasoning, got.Reasoning) ||
		len(got.Calls) > len(whole.Calls) {
		t.Fatalf("cut at %d: %q is no beginning", at, got.Text)
	}
	if c := anthropictest.FromContent(t, events); c.Text != got.Text || c.Reasoning != got.Reasoning ||
		len(c.Calls) != len(got.Calls) {
		t.Fatalf("cut at %d: content says %q, deltas %q", at, c.Text, got.Text)
	}
	if got.Stop == nil && len(got.Messages) > 0 && got.Err == nil {
		t.Fatalf("cut at %d: nothing says that the message is incomplete", at)
	}
}
