package transcript

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript/transcripttest"
	"agentstream/schema"
)

func decodeAll(t testing.TB, format string, body []byte, cfg Config) []schema.Event {
	t.Helper()
	var events []schema.Event
	for e, err := range Decode(format, bytes.NewReader(body), cfg) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

var whole = Config{RunID: "run_1", Lifecycle: true}

// TestRecordings holds the canonical events of every recorded transcript to what is expected of it.
func TestRecordings(t *testing.T) {
	want, read := transcripttest.Recordings(t)
	reasons := map[string]string{"openhands": "the transcript ends while the conversation is running"}
	for name, w := range want {
		t.Run(strings.TrimPrefix(name, "transcripts/"), func(t *testing.T) {
			data := read(name)
			events := decodeAll(t, w.Format, data, whole)
			checkEvents(t, events, true)
			transcripttest.Check(t, name, events)
			o := transcripttest.FromFold(t, events)
			if (o.State == schema.StateDone) != (reasons[w.Format] == "") || o.Reason != reasons[w.Format] {
				t.Errorf("ends %s: %s", o.State, o.Reason)
			}
			if got, ok := Recognise(data[:min(len(data), 4096)]); got != w.Format || !ok {
				t.Errorf("recognised as %q", got)
			}
			plain := decodeAll(t, w.Format, data, Config{})
			checkEvents(t, plain, false)
			if len(plain) != len(events)-2 {
				t.Errorf("%d events without lifecycle, %d with", len(plain), len(events))
			}
		})
	}
}

// TestTimes: a transcript with times gives them to all its events.
func TestTimes(t *testing.T) {
	_, read := transcripttest.Recordings(t)
	for i, e := range decodeAll(t, OpenHands, read("transcripts/review-run.openhands.jsonl"), whole) {
		if !strings.HasPrefix(e.TS, "2026-06-16T05:") || !strings.HasSuffix(e.TS, "Z") {
			t.Errorf("event %d, %s: %q", i, e.Type, e.TS)
		}
		if e.Type == schema.TypeToolEnd && strings.Contains(string(e.Payload), "0d341c7a033ae28") &&
			!strings.Contains(string(e.Payload), `"duration_ms":403`) {
			t.Errorf("%.300s", e.Payload)
		}
	}
}

// TestPieces: the size of the pieces in which a file comes changes nothing.
func TestPieces(t *testing.T) {
	want, read := transcripttest.Recordings(t)
	for name, w := range want {
		data := read(name)
		all := providertest.Lines(decodeAll(t, w.Format, data, whole))
		var events []schema.Event
		for e, err := range Decode(w.Format, iotest.OneByteReader(bytes.NewReader(data)), whole) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		if providertest.Lines(events) != all {
			t.Errorf("%s byte by byte differs", name)
		}
	}
}

// TestCuts ends the recorded transcripts where a broken copy may end them: at every byte of two (of the
// larger one, which takes half a minute, only where AGENTSTREAM_FULL is set), at random ones of the others.
func TestCuts(t *testing.T) {
	want, read := transcripttest.Recordings(t)
	every := map[string]bool{"transcripts/review-run.openhands.jsonl": true,
		"transcripts/browser-agent-26-steps.gemini-cli.jsonl": os.Getenv("AGENTSTREAM_FULL") != ""}
	for name, w := range want {
		data := read(name)
		rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
		offsets := rng.Perm(len(data)) // the whole file is no cut
		if !every[name] {
			offsets = offsets[:300]
		}
		if testing.Short() {
			offsets = offsets[:20]
		}
		t.Run(strings.TrimPrefix(name, "transcripts/"), func(t *testing.T) {
			t.Parallel()
			all := transcripttest.FromFold(t, decodeAll(t, w.Format, data, whole))
			end, before := len(bytes.TrimRight(data, "\n")), ""
			slices.Sort(offsets)
			for _, at := range offsets {
				if at >= end {
					continue
				}
				events := decodeAll(t, w.Format, data[:at], whole)
				if story := withoutBad(events); story != before { // most bytes change nothing but what cannot be read
					before = story
					checkCut(t, all, w.Format, data[:at], events)
				}
			}
		})
	}
}

// withoutBad prints events, but of those that hold what cannot be read the type alone.
func withoutBad(events []schema.Event) string {
	var b strings.Builder
	for i := range events {
		b.WriteString(events[i].Type)
		if !strings.HasSuffix(events[i].Type, ".bad_frame") {
			b.Write(events[i].Payload)
		}
	}
	return b.String()
}

// checkCut holds the events of a transcript that was cut to those of the whole one.
func checkCut(t *testing.T, all transcripttest.TranscriptOutcome, format string, data []byte, events []schema.Event) {
	t.Helper()
	for i := range events {
		if err := events[i].CheckNew("run_1"); err != nil {
			t.Fatalf("cut at %d: %v", len(data), err)
		}
	}
	got := transcripttest.FromFold(t, events)
	if !strings.HasPrefix(all.Text, got.Text) || len(got.Calls) > len(all.Calls) ||
		!strings.HasPrefix(all.Observations, got.Observations) {
		t.Fatalf("cut at %d: %q is no beginning", len(data), got.Text)
	}
	if text, calls := transcripttest.FromContent(t, events); text != got.Text || len(calls) != len(got.Calls) {
		t.Fatalf("cut at %d: content says %q, deltas %q", len(data), text, got.Text)
	}
	// Of lines that say nothing of an end, nobody sees that some are missing; all else is an error.
	between := format == GeminiCLI && len(bytes.TrimSpace(data)) > 0 && len(got.Customs["custom.gemini.bad_frame"]) == 0
	if got.State != schema.StateError && !between || got.State == schema.StateError && got.Reason == "" {
		t.Fatalf("cut at %d: the run ends %s: %s", len(data), got.State, got.Reason)
	}
}
