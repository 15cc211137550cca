package openai

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/openai/openaitest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// decoderOf returns the decoder that a recording is for.
func decoderOf(name string) *provider.Decoder {
	if openaitest.Chat(name) {
		return NewChatDecoder(provider.Config{})
	}
	return NewResponsesDecoder(provider.Config{})
}

// checkEvents: the indexes of blocks are the adapter's own.
func checkEvents(t testing.TB, events []schema.Event) {
	t.Helper()
	providertest.CheckEvents(t, events)
	providertest.CheckNumbered(t, events)
}

// TestRecordings holds the canonical events of every recorded stream to what the provider's own
// client libraries make of it.
func TestRecordings(t *testing.T) {
	want, read := openaitest.Recordings(t)
	for name := range want {
		t.Run(name, func(t *testing.T) {
			events := providertest.Decode(t, decoderOf(name), read(name))
			checkEvents(t, events)
			openaitest.Check(t, name, events)
			if o := openaitest.FromFold(t, events); o.Incomplete {
				t.Error("a whole stream is incomplete")
			}
		})
	}
}

// TestPieces: the size of the pieces in which a body comes changes nothing.
func TestPieces(t *testing.T) {
	want, read := openaitest.Recordings(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for name := range want {
		t.Run(name, func(t *testing.T) {
			for _, size := range []func() int{func() int { return 1 }, func() int { return 7 }, func() int { return 1 + rng.IntN(4096) }} {
				providertest.CheckPieces(t, func() *provider.Decoder { return decoderOf(name) }, read(name), size)
			}
		})
	}
}

// TestCuts ends the recorded streams where a broken connection may end them: at every third byte of some of
// them (all in the full form), at random ones of the others.
func TestCuts(t *testing.T) {
	want, read := openaitest.Recordings(t)
	every := map[string]bool{"openai-chat/parallel-tools.sse": true, "openai-chat/three-choices.sse": true,
		"openai-responses/parallel-functions-step1.sse":     true,
		"openai-responses/reasoning-summary-tool-step1.sse": true, "openai-responses/background-create.sse": true}
	for name, w := range want {
		data := read(name)
		rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
		var offsets []int
		for i := 0; i <= len(data); i += step() {
			offsets = append(offsets, i)
		}
		if n := 150; !every[name] || testing.Short() {
			rng.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
			offsets = offsets[:min(n, len(offsets))]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := openaitest.FromFold(t, providertest.Decode(t, decoderOf(name), data))
			for _, at := range offsets {
				checkCut(t, name, whole, data[:at], w.Error != nil)
			}
		})
	}
}

// step is from one cut to the next: the race detector makes each of them dear.
func step() int {
	if os.Getenv("AGENTSTREAM_FULL") != "" {
		return 1
	}
	return 3
}

// checkCut holds the events of a stream that was cut to those of the whole one.
func checkCut(t *testing.T, name string, whole openaitest.OpenAIOutcome, data []byte, fails bool) {
	t.Helper()
	at := len(data)
	events := providertest.Decode(t, decoderOf(name), data)
	providertest.CheckNumbered(t, events)
	got := openaitest.FromFold(t, events)
	if !strings.HasPrefix(whole.Text, got.Text) || !strings.HasPrefix(whole.Reasoning, got.Reasoning) ||
		!strings.HasPrefix(whole.Refusal, got.Refusal) || len(got.Calls) > len(whole.Calls) {
		t.Fatalf("cut at %d: %q is no beginning", at, got.Text)
	}
	if c := openaitest.FromContent(t, events); c.Text != got.Text || c.Reasoning != got.Reasoning ||
		c.Refusal != got.Refusal || len(c.Calls) != len(got.Calls) {
		t.Fatalf("cut at %d: content says %q, deltas %q", at, c.Text, got.Text)
	}
	if len(got.Messages) == 0 || got.Finish != nil && got.Usage != nil {
		return
	}
	var o provider.Outcome
	for i := range events {
		o.See(&events[i])
	}
	state, _ := o.State()
	if openaitest.Chat(name) && got.Finish != nil { // it lacks nothing that the message needs
		if (got.Err != nil || got.Incomplete) && !fails {
			t.Fatalf("cut at %d: the message is said to be incomplete behind its finish reason", at)
		}
		return
	}
	if state != schema.StateError || got.Err == nil || !got.Incomplete && !fails {
		t.Fatalf("cut at %d: nothing says that the message is incomplete", at)
	}
}

// TestRejoin cuts a stream of the background mode at every third byte (all in the full form), and goes on with the one
// that begins after the first event: nothing is doubled, nothing is lost.
func TestRejoin(t *testing.T) {
	_, read := openaitest.Recordings(t)
	first, second := read("openai-responses/background-create.sse"), read("openai-responses/background-resume-starting-after-0.sse")
	whole := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), first)
	want := openaitest.FromFold(t, whole)
	zero := bytes.Index(first, []byte("\n\n")) + 2
	for at := zero; at <= len(first); at += step() {
		d := NewResponsesDecoder(provider.Config{})
		events, err := d.Write(first[:at])
		if err != nil {
			t.Fatal(err)
		}
		d.Rejoin()
		events = append(events, providertest.Decode(t, d, second)...)
		providertest.CheckNumbered(t, events)
		if got := openaitest.FromFold(t, events); len(events) != len(whole) || !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: %s", at, providertest.Print(events))
		}
	}
}

// rotated returns a recorded stream in which no two frames name the response or an item by the same id, as some proxies
// pass it on.
func rotated(data []byte) []byte {
	n := 0
	return regexp.MustCompile(`"(id|item_id)": ?"(resp|msg|rs|fc|ctc|ws|ci)_[^"]*"`).ReplaceAllFunc(data,
		func(m []byte) []byte {
			n++
			return fmt.Appendf(nil, "%s_%d\"", m[:len(m)-1], n)
		})
}

// TestRotatedIDs: ids that change from frame to frame make no other responses, and change nothing of what is told.
// Only response.created and numbers that start over do.
func TestRotatedIDs(t *testing.T) {
	want, read := openaitest.Recordings(t)
	rotations := 0
	for name := range want {
		if openaitest.Chat(name) {
			continue
		}
		data := read(name)
		turned := rotated(data)
		if bytes.Equal(turned, data) {
			continue
		}
		rotations++
		was := openaitest.FromFold(t, providertest.Decode(t, NewResponsesDecoder(provider.Config{}), data))
		events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), turned)
		checkEvents(t, events)
		got := openaitest.FromFold(t, events)
		if len(got.Messages) != len(was.Messages) || got.Text != was.Text || got.Reasoning != was.Reasoning ||
			len(got.Calls) != len(was.Calls) || got.Incomplete || !reflect.DeepEqual(got.Usage, was.Usage) {
			t.Errorf("%s: %d messages, %d calls, %d of text, %d of reasoning; want %d, %d, %d, %d", name,
				len(got.Messages), len(got.Calls), len(got.Text), len(got.Reasoning), len(was.Messages), len(was.Calls),
				len(was.Text), len(was.Reasoning))
		}
	}
	if rotations < 17 {
		t.Errorf("ids of %d recordings were changed", rotations)
	}
	// A body that was cut, and behind it one that begins another response but for its first event.
	first, second := read("openai-responses/background-create.sse"), read("openai-responses/background-resume-starting-after-0.sse")
	cut := first[:bytes.Index(first, []byte("response.output_text.done"))]
	other := bytes.ReplaceAll(second, []byte("resp_0850765c"), []byte("resp_other"))
	events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), slices.Concat(cut, []byte("\n\n"), other))
	if o := openaitest.FromFold(t, events); len(o.Messages) != 2 || o.Text != "2 + 2 equals 4.2 + 2 equals 4." {
		t.Errorf("%d messages: %q", len(o.Messages), o.Text)
	}
}

// TestRepeated: the same response again is seen without being told, and another one is another.
func TestRepeated(t *testing.T) {
	_, read := openaitest.Recordings(t)
	first, second := read("openai-responses/background-create.sse"), read("openai-responses/background-resume-starting-after-0.sse")
	events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), append(bytes.Clone(first), second...))
	checkEvents(t, events)
	openaitest.Check(t, "openai-responses/background-create.sse", events)
	other := bytes.ReplaceAll(first, []byte("resp_0850765c"), []byte("resp_other"))
	events = providertest.Decode(t, NewResponsesDecoder(provider.Config{}), append(bytes.Clone(first), other...))
	checkEvents(t, events)
	if o := openaitest.FromFold(t, events); o.Text != "2 + 2 equals 4.2 + 2 equals 4." || len(o.Messages) != 2 {
		t.Errorf("%q in %v", o.Text, o.Messages)
	}
}
