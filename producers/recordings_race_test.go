package producers_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript"
	"agentstream/adapters/transcript/transcripttest"
	"agentstream/schema"
)

// TestDecodersShareNothing: adapters that work at the same time make of every recording what each makes
// alone. The adapters' own tests run without the race detector (internal/arch), so what is shared must
// show here.
func TestDecodersShareNothing(t *testing.T) {
	all := readers(t)
	alone := make(map[string]string, len(all))
	for name, read := range all {
		alone[name] = read()
	}
	names := slices.Sorted(maps.Keys(all))
	var working sync.WaitGroup
	for w := range 4 {
		working.Go(func() {
			for i := range names {
				name := names[(i+w)%len(names)] // almost the same at the same time
				if got := all[name](); got != alone[name] {
					t.Errorf("%s: beside others it is\n%.2000s\nalone\n%.2000s", name, got, alone[name])
				}
			}
		})
	}
	working.Wait()
}

// readers gives, for each recorded answer and transcript, what decodes it and gives the events as lines.
func readers(t *testing.T) map[string]func() string {
	t.Helper()
	all := make(map[string]func() string)
	for folder, decoder := range adapters {
		files, err := filepath.Glob(filepath.Join(providertest.Dir(t), folder, "*"))
		must(t, err)
		for _, file := range files {
			body, err := os.ReadFile(file)
			must(t, err)
			all[folder+"/"+filepath.Base(file)] = func() string {
				d := decoder(provider.Config{})
				events, err := d.Write(body)
				if err != nil {
					t.Error(err)
				}
				return providertest.Lines(append(events, d.Close()...))
			}
		}
	}
	want, read := transcripttest.Recordings(t) // says what to do when there are no recordings
	for name, w := range want {
		body := read(name)
		all[name] = func() string {
			var events []schema.Event
			for e, err := range transcript.Decode(w.Format, bytes.NewReader(body), transcript.Config{RunID: "run_1"}) {
				if err != nil {
					t.Error(err)
				}
				events = append(events, e)
			}
			return providertest.Lines(events)
		}
	}
	if len(all) < 55 {
		t.Errorf("only %d recordings", len(all))
	}
	return all
}
