package metis

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript"
	"agentstream/schema/schematest"
)

// recordings returns the canonical events of each recording, as a run of its own.
func recordings(t *testing.T) (all []schematest.Scenario) {
	t.Helper()
	decoders := map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder,
		"openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	}
	for _, folder := range append(slices.Sorted(maps.Keys(decoders)), "transcripts") {
		want, read := providertest.Recordings[any](t, 4, folder)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			s := schematest.Scenario{Name: name}
			if d := decoders[folder]; d != nil {
				s.Events = providertest.Decode(t, d(provider.Config{}), read(name))
			} else {
				for e, err := range transcript.Decode(strings.Split(name, ".")[1], bytes.NewReader(read(name)),
					transcript.Config{}) {
					if err != nil {
						t.Fatal(err)
					}
					e.RunID, e.ChildID, e.ID, e.Path = "", "", "", nil
					s.Events = append(s.Events, e)
				}
			}
			all = append(all, s)
		}
	}
	if len(all) < 63 {
		t.Fatalf("only %d recordings", len(all))
	}
	return all
}

// TestRecordings: the deltas of each message of each recording are its final content.
func TestRecordings(t *testing.T) {
	t.Parallel()
	messages := 0
	for _, s := range recordings(t) {
		replies := map[string]*reply{}
		for _, e := range events(t, project(t, projector(Filter{}, ""), records(t, s))) {
			m := replies[e.p.Message]
			switch {
			case e.Type == "message.start":
				replies[e.p.Message] = newReply()
			case m == nil:
			case e.Type == "message.complete":
				messages++
				if wrong := m.same(e); wrong != "" {
					t.Errorf("%s: %s", s.Name, wrong)
				}
			default:
				m.see(e)
			}
		}
	}
	if messages < 63 {
		t.Errorf("only %d messages", messages)
	}
}
