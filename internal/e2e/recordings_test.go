package e2e_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/openai/openaitest"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript/transcripttest"
	agentstream "agentstream/clients/go"
	"agentstream/schema"
)

// checked is how one recording is held to what is expected of it.
type checked struct {
	check  func(t *testing.T, events []schema.Event)
	failed bool // the recording holds an error of the provider
	// partial says that the transcript ends before the run does: its run ends as an error, which is no
	// fault of the file.
	partial bool
}

// recorded returns all recordings by name, with the checks of the adapter that reads them.
func recorded(t *testing.T) map[string]checked {
	t.Helper()
	all := map[string]checked{}
	messages, _ := anthropictest.Recordings(t)
	for name, w := range messages {
		all[name] = checked{check: func(t *testing.T, e []schema.Event) { anthropictest.Check(t, e, w) },
			failed: w.Error != nil}
	}
	chats, _ := openaitest.Recordings(t)
	for name, w := range chats {
		all[name] = checked{check: func(t *testing.T, e []schema.Event) { openaitest.Check(t, name, e) },
			failed: w.Error != nil}
	}
	answers, _ := geminitest.Recordings(t)
	for name := range answers {
		all[name] = checked{check: func(t *testing.T, e []schema.Event) { geminitest.Check(t, name, e) }}
	}
	transcripts, _ := transcripttest.Recordings(t)
	for name := range transcripts {
		all[name] = checked{
			check:   func(t *testing.T, e []schema.Event) { transcripttest.Check(t, name, e) },
			partial: strings.Contains(name, "openhands"),
		}
	}
	if len(all) != 63 {
		t.Fatalf("%d recordings, want 63", len(all))
	}
	return all
}

// Every recording, published by the command line into a running server as nothing but a file, and read
// back from it in two ways, is what the provider's own client libraries make of it: assembled text and
// reasoning, tool calls with their parsed input, stop reason, usage, errors. What the server exports and
// what it sums up say the same. A client that was written from the protocol's text alone sees it, too.
func TestRecordingsThroughTheProduct(t *testing.T) {
	beside(t)
	all := recorded(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	client, err := agentstream.New(agentstream.Config{BaseURL: p.url("")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	runs := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
		runs[name] = run
		t.Run(name, func(t *testing.T) {
			publishFile(t, p.url(""), run, filepath.Join(providertest.Dir(t), filepath.FromSlash(name)))
			events, fold := readBack(t, p.url("/v1/agent/runs/"+run))
			all[name].check(t, slices.DeleteFunc(slices.Clone(events), func(e schema.Event) bool {
				return e.Type == schema.TypeRunLifecycle && e.ChildID == ""
			}))
			if want := all[name].failed || all[name].partial; !fold.State.Final() || (fold.State == schema.StateError) != want {
				t.Errorf("the run ends in state %s, %s", fold.State, fold.Reason)
			}
			sum, err := client.Run(run).Snapshot(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := sum.AppendSnapshot(nil), fold.AppendSnapshot(nil); !bytes.Equal(got, want) {
				t.Errorf("the snapshot is not the fold of the events\n got %.2000s\nwant %.2000s", got, want)
			}
		})
	}
	t.Run("by the letter", func(t *testing.T) {
		checkLetter(t, p.url(""), runs, func(name string) bool { return all[name].failed || all[name].partial })
	})
}

// publishFile publishes a file whose format nobody names.
func publishFile(t *testing.T, server, run, file string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(path, "publish", "--server", server, "--run", run, "-")
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin, cmd.Env = in, append(os.Environ(), "AGENTSTREAM_TOKEN="+edgeToken) // which dev does not ask for
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// readBack reads a whole run as the server exports it, and puts it together.
func readBack(t *testing.T, run string) ([]schema.Event, *schema.Fold) {
	t.Helper()
	resp, err := http.Get(run + "/replay.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %.300s: %v", resp.StatusCode, body, err)
	}
	var out []schema.Event
	fold := &schema.Fold{}
	for line := range bytes.Lines(body) {
		e, err := schema.DecodeLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || e.Seq != schema.Seq(len(out)+1) {
			t.Fatalf("seq %d behind %d: %v", e.Seq, len(out), err)
		}
		out = append(out, e)
		fold.Add(&e)
	}
	if n := len(out); n == 0 || out[n-1].Type != schema.TypeRunLifecycle {
		t.Fatalf("the run of %d events does not end", n)
	}
	return out, fold
}
