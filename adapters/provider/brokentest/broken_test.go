package brokentest

import (
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	decodeanthropic "agentstream/adapters/anthropic"
	decodegemini "agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// decoders are those of the APIs.
var decoders = map[API]func(provider.Config) *provider.Decoder{
	Anthropic: decodeanthropic.NewDecoder, Chat: openai.NewChatDecoder, Responses: openai.NewResponsesDecoder, Gemini: decodegemini.NewDecoder,
}

// recording is a recorded stream, and what it comes to.
type recording struct {
	name   string
	api    API
	stream *Body
	want   ReadOutcome
}

func recordings(t testing.TB) (list []recording) {
	t.Helper()
	for _, api := range everywhere {
		all, read := providertest.Recordings[struct{}](t, 8, string(api))
		var names []string
		for name := range all {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			body := read(name)
			r := recording{name, api, Read(api, body), Of(providertest.Decode(t, decoders[api](provider.Config{}), body))}
			list = append(list, r)
		}
	}
	return list
}

// decode decodes a body in pieces of any size.
func decode(t testing.TB, r *rand.Rand, api API, body []byte) []schema.Event {
	t.Helper()
	d := decoders[api](provider.Config{})
	var events []schema.Event
	most := 1 + r.IntN(4096)
	for rest := body; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(most))
		more, err := d.Write(rest[:n])
		if err != nil {
			t.Fatal(err)
		}
		events, rest = append(events, more...), rest[n:]
	}
	events = append(events, d.Close()...)
	providertest.CheckNumbered(t, events)
	return events
}

// TestRead: a stream that is written again without a rewriting is the recorded one.
func TestRead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, rec := range recordings(t) {
		if d := Of(decode(t, r, rec.api, rec.stream.Clone().Body(r))).Diff(rec.want, 0); d != "" {
			t.Errorf("%s: %s", rec.name, d)
		}
	}
}

// TestRewritings: every rewriting of every recording results in what the recording does, but for what it says of
// itself.
func TestRewritings(t *testing.T) {
	applied := map[string]int{}
	all := recordings(t)
	for _, rec := range all {
		for i, rw := range For(rec.api) {
			for seed := range uint64(3) {
				if check(t, rec, uint64(i)<<8|seed, rw) {
					applied[rw.Name]++
				}
			}
		}
	}
	for _, rw := range Rewritings() {
		if applied[rw.Name] == 0 {
			t.Errorf("%q rewrites no recording", rw.Name)
		}
	}
}

// check rewrites a recording. It reports whether all rewritings found something.
func check(t *testing.T, rec recording, seed uint64, how ...Rewriting) (applied bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := rec.stream.Clone()
	var but Aspect
	var names []string
	for _, rw := range how {
		if !rw.Do(r, s) {
			return false
		}
		but |= rw.But
		names = append(names, rw.Name)
	}
	if !s.Possible() {
		return false
	}
	body := s.Body(r)
	ended := false
	defer func() {
		if !ended {
			t.Errorf("%s, %s, seed %d", rec.name, strings.Join(names, " + "), seed)
		}
	}()
	events := decode(t, r, rec.api, body)
	ended = true
	if d := Of(events).Diff(rec.want, but); d != "" {
		t.Errorf("%s, %s, seed %d: %s", rec.name, strings.Join(names, " + "), seed, d)
		if path := os.Getenv("BROKEN_OUT"); path != "" {
			_ = os.WriteFile(path, body, 0o644)
		}
	}
	return true
}

// TestPairs: two rewritings at once. BROKEN_STREAMS and BROKEN_SEED choose how many streams, and which.
func TestPairs(t *testing.T) {
	streams, seed := 5500, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("BROKEN_STREAMS")); err == nil {
		streams = n
	}
	if n, err := strconv.ParseUint(os.Getenv("BROKEN_SEED"), 10, 64); err == nil {
		seed = n
	}
	const most = 25 // frames
	all := recordings(t)
	r := rand.New(rand.NewPCG(seed, 3))
	done := 0
	defer func() { t.Logf("%d streams", done) }()
	for bad := 0; done < streams && bad < 10; {
		rec := all[r.IntN(len(all))]
		if n := len(rec.stream.Frames); n > most && r.IntN(n) > most {
			continue // the long ones are as good as the others, and take longer
		}
		list := For(rec.api)
		a, b := r.IntN(len(list)), r.IntN(len(list))
		if a != b && check(t, rec, r.Uint64(), list[a], list[b]) {
			done++
			if t.Failed() {
				bad++
			}
		}
	}
}

// TestDocumented: the page of producers names every rewriting, with its APIs and what may differ.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/producers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rw := range Rewritings() {
		if row := Row(rw); !strings.Contains(string(page), row) {
			t.Errorf("docs/producers.md has no row\n%s", row)
		}
	}
}
