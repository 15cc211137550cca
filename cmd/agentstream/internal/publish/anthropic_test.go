package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider/providertest"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// stream is a short message stream of the provider, written for this test.
func stream(id, text, stop string) string {
	q := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	frame := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	return frame("message_start", `{"type":"message_start","message":{"id":`+q(id)+
		`,"type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}`) +
		frame("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		frame("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":`+
			q(text)+`}}`) +
		frame("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		frame("message_delta", `{"type":"message_delta","delta":{"stop_reason":`+q(stop)+`},"usage":{"output_tokens":5}}`) +
		frame("message_stop", `{"type":"message_stop"}`)
}

// states returns the lifecycle states of a run with their reasons, and whether they stand first and
// last.
func states(t *testing.T, lines []string) (got []string) {
	t.Helper()
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != schema.TypeRunLifecycle {
			continue
		}
		l, err := schema.ParseLifecycle(e.Payload)
		if err != nil {
			t.Fatal(err)
		}
		s := e.ChildID + string(l.State)
		if l.Reason != nil {
			s += ": " + *l.Reason
		}
		got = append(got, s)
	}
	return got
}

func TestPublishAnthropicLifecycle(t *testing.T) {
	good := stream("msg_1", "hello", "end_turn")
	failed := strings.Split(good, "event: content_block_stop")[0] +
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	for _, c := range []struct {
		name  string
		files []string
		cmd   PublishCmd
		want  []string
	}{
		{"new run", []string{good}, PublishCmd{RunID: "r1"}, []string{"running", "done"}},
		{"two calls", []string{good, stream("msg_2", "bye", "end_turn")}, PublishCmd{RunID: "r1"},
			[]string{"running", "done"}},
		{"minted run", []string{good}, PublishCmd{}, []string{"running", "done"}},
		{"provider's error", []string{failed}, PublishCmd{RunID: "r1"},
			[]string{"running", "error: overloaded_error: Overloaded"}},
		{"error, then tried again", []string{failed, good}, PublishCmd{RunID: "r1"}, []string{"running", "done"}},
		{"cut", []string{good[:len(good)/2]}, PublishCmd{RunID: "r1"},
			[]string{"running", "error: stream_cut: the provider's stream ended before the message did"}},
		{"nothing", []string{""}, PublishCmd{RunID: "r1"}, []string{"running", "error: the stream holds no message"}},
		{"without", []string{good}, PublishCmd{RunID: "r1", NoLifecycle: true}, nil},
		{"child", []string{good}, PublishCmd{RunID: "r1", Child: "c1"}, []string{"c1running", "c1done"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			c.cmd.Format = "anthropic"
			for i, f := range c.files {
				c.cmd.Files = append(c.cmd.Files, clitest.WriteFile(t, fmt.Sprintf("%d.sse", i), f))
			}
			_, stderr, err := publish(t, s, c.cmd)
			if broken := c.name == "cut" || c.name == "nothing"; (err != nil) != broken {
				t.Fatalf("%v\n%s", err, stderr)
			}
			run := c.cmd.RunID
			if run == "" {
				run = "run_minted_1"
			}
			lines := s.Lines(run)
			if got := states(t, lines); !slices.Equal(got, c.want) {
				t.Fatalf("states %q, want %q", got, c.want)
			}
			if c.want != nil {
				for _, i := range []int{0, len(lines) - 1} {
					if r, _ := schema.ScanLine([]byte(lines[i])); string(r.Type) != schema.TypeRunLifecycle {
						t.Errorf("event %d is %s", i+1, r.Type)
					}
				}
			}
		})
	}
}

// A run that exists is gone on with; whether it may be is for the server to say.
func TestPublishAnthropicIntoExistingRun(t *testing.T) {
	s := clitest.NewStandIn(t)
	file := clitest.WriteFile(t, "a.sse", stream("msg_1", "hello", "end_turn"))
	for range 2 {
		if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Format: "anthropic", Files: []string{file}}); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
	}
	if got, want := states(t, s.Lines("r1")), []string{"running", "done", "done"}; !slices.Equal(got, want) {
		t.Errorf("states %q, want %q", got, want)
	}
}

func TestPublishAnthropicWithoutLifecycleMintsHere(t *testing.T) {
	s := clitest.NewStandIn(t)
	stdout, _, err := publish(t, s, PublishCmd{Format: "anthropic", NoLifecycle: true,
		Streams: cli.Streams{In: strings.NewReader(stream("m", "x", "end_turn"))}})
	if err != nil || s.Minted != 0 {
		t.Fatalf("%v, %d runs minted by the server", err, s.Minted)
	}
	run, _, _ := strings.Cut(strings.TrimPrefix(stdout, "run="), " ")
	if !strings.HasPrefix(run, schema.RunPrefix) || len(s.Lines(run)) == 0 {
		t.Errorf("summary %q", stdout)
	}
}

// A recording whose producer is interrupted does not leave its run open for ever.
func TestPublishAnthropicInterrupted(t *testing.T) {
	s := clitest.NewStandIn(t)
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := PublishCmd{ServerFlags: cli.ServerFlags{Server: s.URL}, RunID: "r1", Format: "anthropic",
		Streams: cli.Streams{In: r, Out: io.Discard, Err: io.Discard}}
	done := make(chan error, 1)
	go func() { done <- cmd.Run(ctx) }()
	go io.WriteString(w, strings.Split(stream("m", "hello", "end_turn"), "event: content_block_stop")[0])
	clitest.WaitFor(t, func() bool { return strings.Contains(clitest.Join(s.Lines("r1")), `"text":"hello"`) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got, want := states(t, s.Lines("r1")), []string{"running", "aborted: interrupted"}; !slices.Equal(got, want) {
		t.Errorf("states %q, want %q", got, want)
	}
}

func TestPublishAnthropicSaysThatItHasNoTimes(t *testing.T) {
	s := clitest.NewStandIn(t)
	_, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Format: "anthropic", Pace: "original",
		Streams: cli.Streams{In: strings.NewReader(stream("m", "x", "end_turn"))}})
	if err != nil || !strings.Contains(stderr, "--pace original has no effect") {
		t.Errorf("%v, stderr %q", err, stderr)
	}
}

// Every real recording goes through the command, and what is stored folds to the text that its
// frames spell. (The adapter's own tests compare everything else.)
func TestPublishAnthropicRecordings(t *testing.T) {
	all, _ := anthropictest.Recordings(t)
	for name := range all {
		file := filepath.Join(providertest.Dir(t), filepath.FromSlash(name))
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := clitest.NewStandIn(t)
			if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Format: "anthropic", Files: []string{file}}); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			var fold schema.Fold
			for _, line := range s.Lines("r1") {
				e, err := schema.DecodeLine([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				fold.Add(&e)
			}
			if got, want := fold.Text("", "text"), deltaText(raw); got != want {
				t.Errorf("text of %d bytes, want %d bytes", len(got), len(want))
			}
			if !fold.State.Final() {
				t.Errorf("state %q", fold.State)
			}
		})
	}
}

// deltaText joins the text deltas of a recording, read line by line in the simplest way.
func deltaText(raw []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "data:")
		var e struct {
			Type  string
			Delta struct{ Type, Text string }
			Block struct{ Type, Text string } `json:"content_block"`
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		if e.Type == "content_block_delta" && e.Delta.Type == "text_delta" {
			b.WriteString(e.Delta.Text)
		}
		if e.Type == "content_block_start" && e.Block.Type == "text" {
			b.WriteString(e.Block.Text)
		}
	}
	return b.String()
}

// The answer of the first batch never comes: whether it is stored is open, so the run is ended all
// the same.
func TestPublishAnthropicInterruptedBeforeTheFirstAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			cancel()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"first_seq":9,"last_seq":9}`)
	}))
	defer server.Close()
	// the end could be in the first request, too
	begun, _, _ := strings.Cut(stream("m", "hello", "end_turn"), "event: message_stop")
	cmd := PublishCmd{ServerFlags: cli.ServerFlags{Server: server.URL}, RunID: "r1", Format: "anthropic",
		Streams: cli.Streams{In: io.MultiReader(strings.NewReader(begun), until{ctx}), Out: io.Discard, Err: io.Discard}}
	if err := cmd.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(bodies) != 2 || !strings.Contains(bodies[1], `"aborted"`) {
		t.Errorf("requests %q", bodies)
	}
}

// until is an input in which nothing more comes until a context ends.
type until struct{ ctx context.Context }

func (u until) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, io.EOF
}
