package publish

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// foldOf puts stored lines together.
func foldOf(t *testing.T, lines []string) *schema.Fold {
	t.Helper()
	f := &schema.Fold{}
	for _, line := range lines {
		e, err := schema.DecodeLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		f.Add(&e)
	}
	return f
}

// nativeRun is a run as the server exports it: the events of a recorded call, with their lifecycle.
func nativeRun(t *testing.T) []byte {
	t.Helper()
	s := clitest.NewStandIn(t)
	in := strings.NewReader(stream("msg_1", strings.Repeat("hello ", 20), "tool_use") + stream("msg_2", "bye", "end_turn"))
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Streams: cli.Streams{In: in}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var b bytes.Buffer
	for _, line := range s.Lines("r1") {
		r, err := schema.ScanLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, `{"type":%q,"payload":%s}`+"\n", r.Type, r.Payload())
	}
	return b.Bytes()
}

// smallest returns the smallest recordings of each format, at most so many.
func smallest(t *testing.T, n int) map[string][]string {
	t.Helper()
	all := clitest.Recordings(t)
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for name, files := range all {
		slices.SortFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
		all[name] = files[:min(n, len(files))]
	}
	return all
}

// A file that is cut anywhere gives a run that ends, with the error and its reason, and with the
// beginning of what the whole file says; and the command fails.
func TestPublishFilesThatAreCut(t *testing.T) {
	files := smallest(t, 2)
	files["native"] = []string{clitest.WriteFile(t, "run.ndjson", string(nativeRun(t)))}
	for name, list := range files {
		if formatNamed(name) == nil {
			t.Logf("%s is not in the table", name)
			continue
		}
		for i, file := range list {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				cutAnywhere(t, name, file)
			})
		}
	}
}

// said is what the model said; the documents of swe-agent have the words of others after its own.
func said(f *schema.Fold, kind string) string {
	var b strings.Builder
	for _, m := range f.Messages {
		for _, block := range m.Blocks {
			if m.Role == "assistant" && block.Kind == kind {
				b.WriteString(block.Text.String())
			}
		}
	}
	return b.String()
}

func cutAnywhere(t *testing.T, name, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := clitest.NewStandIn(t)
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "whole", Format: name, Files: []string{file}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	whole := foldOf(t, s.Lines("whole"))
	rng := rand.New(rand.NewPCG(uint64(len(data)), 9))
	for i := range 50 {
		at, run := rng.IntN(len(data)), fmt.Sprintf("cut_%d", i)
		_, _, err := publish(t, s, PublishCmd{RunID: run, Format: name, Streams: cli.Streams{In: bytes.NewReader(data[:at])}})
		lines := s.Lines(run)
		got := foldOf(t, lines)
		for _, kind := range []string{"text", "reasoning"} {
			if text := said(got, kind); !strings.HasPrefix(said(whole, kind), text) {
				t.Fatalf("cut at %d: %s %q is no beginning", at, kind, text)
			}
		}
		if name == "native" && (got.State == "" || err == nil) {
			continue // cut before the run began, or between two events: a file of events may end there
		}
		if !got.State.Final() {
			t.Fatalf("cut at %d: the run is left %q (%v)", at, got.State, err)
		}
		ends := states(t, lines)
		if failed := got.State == schema.StateError; failed != (err != nil) || failed &&
			!strings.HasPrefix(ends[len(ends)-1], "error: ") {
			t.Fatalf("cut at %d: states %q, error %v", at, ends, err)
		}
		for _, m := range got.Messages {
			if m.End == 0 {
				t.Fatalf("cut at %d: message %s stays open", at, m.ID)
			}
		}
	}
}

// What of a native file was begun is ended when the file breaks; a run that it only adds to is not.
func TestPublishEndsWhatABrokenFileBegan(t *testing.T) {
	broken := `{"type":"run.lifecycle","payload":{"state":"running"}}
{"type":"message.start","payload":{"message_id":"m1","role":"assistant"}}
{"type":"text.delta","payload":{"text":"half"}}
{"type":"text.del`
	rest := strings.Join(strings.Split(broken, "\n")[1:], "\n")
	for _, c := range []struct {
		name, in string
		cmd      PublishCmd
		want     []string
	}{
		{"begun by the file", broken, PublishCmd{RunID: "r1"},
			[]string{"running", "error: the file cannot be read: line 4: unexpected EOF"}},
		{"begun by the server", rest, PublishCmd{},
			[]string{"running", "error: the file cannot be read: line 3: unexpected EOF"}},
		{"begun by others", rest, PublishCmd{RunID: "r1"}, nil},
		{"not to be ended", broken, PublishCmd{RunID: "r1", NoLifecycle: true}, []string{"running"}},
		{"ended", strings.Replace(broken, "running", "done", 1), PublishCmd{RunID: "r1"}, []string{"done"}},
		{"child", broken, PublishCmd{RunID: "r1", Child: "c1"},
			[]string{"c1running", "c1error: the file cannot be read: line 4: unexpected EOF"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			c.cmd.Streams.In = strings.NewReader(c.in)
			_, _, err := publish(t, s, c.cmd)
			if err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
				t.Errorf("error %v", err)
			}
			run := c.cmd.RunID
			if run == "" {
				run = "run_minted_1"
			}
			if got := states(t, s.Lines(run)); !slices.Equal(got, c.want) {
				t.Errorf("states %q, want %q", got, c.want)
			}
			all := clitest.Join(s.Lines(run))
			if ended := len(c.want) == 2; strings.Contains(all, `"message.end"`) != ended || ended &&
				!strings.Contains(all, `"text":"half"}]`) {
				t.Errorf("%s", all)
			}
		})
	}
}

// A call that is broken does not keep the calls after it out of the run, but the command says so.
func TestPublishGoesOnAfterABrokenCall(t *testing.T) {
	s := clitest.NewStandIn(t)
	good := stream("msg_1", "hello", "end_turn")
	cut := clitest.WriteFile(t, "cut.sse", good[:len(good)/2])
	stdout, _, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{cut, clitest.WriteFile(t, "good.sse", good)}})
	if err == nil || !strings.Contains(err.Error(), cut+": stream_cut") || stdout != "" {
		t.Errorf("%v, %s", err, stdout)
	}
	if got := states(t, s.Lines("r1")); !slices.Equal(got, []string{"running", "done"}) {
		t.Errorf("states %q", got)
	}
	// What the provider itself said to have failed is a recording as good as any.
	failed := strings.Split(good, "event: content_block_stop")[0] +
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
	if _, _, err := publish(t, s, PublishCmd{RunID: "r2",
		Streams: cli.Streams{In: strings.NewReader(failed)}}); err != nil {
		t.Error(err)
	}
	if got := states(t, s.Lines("r2")); !slices.Equal(got, []string{"running", "error: overloaded_error"}) {
		t.Errorf("states %q", got)
	}
}

// Several files are the consecutive calls of one run: each is a step of it, in a run that begins here.
func TestPublishSteps(t *testing.T) {
	s := clitest.NewStandIn(t)
	call := strings.Replace(stream("msg_1", "hello", "tool_use"), `"content_block":{"type":"text","text":""}`,
		`"content_block":{"type":"tool_use","id":"t1","name":"n","input":{}}`, 1)
	files := []string{clitest.WriteFile(t, "1", call), clitest.WriteFile(t, "2", stream("msg_2", "bye", "end_turn"))}
	for range 2 {
		if _, _, err := publish(t, s, PublishCmd{RunID: "r1", Files: files}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, line := range s.Lines("r1") {
		r, err := schema.ScanLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Type) == schema.TypeStepBoundary {
			got = append(got, string(r.Payload()))
		}
	}
	want := []string{`{"step_index":0,"step_kind":"tool-roundtrip","checkpoint_id":null}`,
		`{"step_index":1,"step_kind":"text-only","checkpoint_id":null}`}
	if !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}

// A batch that the server refuses for good ends the run that was begun, and says where it is from.
func TestPublishEndsTheRunWhenItCannotGoOn(t *testing.T) {
	s := clitest.NewStandIn(t)
	var refuse atomic.Bool
	s.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if refuse.CompareAndSwap(true, false) {
			clitest.Problem(w, http.StatusForbidden, "FORBIDDEN", "not any more", 0)
			return true
		}
		return false
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := publish(t, s, PublishCmd{RunID: "r1", Streams: cli.Streams{In: r}})
		done <- err
	}()
	all := stream("msg_1", "hello", "end_turn")
	head, rest, _ := strings.Cut(all, "event: content_block_stop")
	io.WriteString(w, head)
	clitest.WaitFor(t, func() bool { return strings.Contains(clitest.Join(s.Lines("r1")), "hello") })
	refuse.Store(true)
	io.WriteString(w, "event: content_block_stop"+rest)
	w.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "FORBIDDEN") {
		t.Errorf("error %v", err)
	}
	if got := states(t, s.Lines("r1")); !slices.Equal(got, []string{"running", "error: the rest could not be published"}) {
		t.Errorf("states %q", got)
	}
}

// endless returns a text again and again, so many bytes of it and a tail.
func endless(head, part, tail string, bytes int) io.Reader {
	readers := []io.Reader{strings.NewReader(head)}
	for range bytes / len(part) {
		readers = append(readers, strings.NewReader(part))
	}
	return io.MultiReader(append(readers, strings.NewReader(tail))...)
}

// watchHeap returns the most that was in use on the heap until stop, beyond what was before, in bytes.
func watchHeap() (stop func(), peak chan uint64) {
	ended, peak := make(chan struct{}), make(chan uint64, 1)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	go func() {
		var most uint64
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc-min(before, m.HeapAlloc))
			select {
			case <-ended:
				tick.Stop()
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(ended) }, peak
}

// newDiscard is a server that acknowledges everything and keeps nothing.
func newDiscard(t *testing.T, stored *int) string {
	t.Helper()
	seq := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		first, lines := seq+1, bufio.NewScanner(r.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			seq++
			*stored += len(lines.Bytes())
		}
		fmt.Fprintf(w, `{"first_seq":%d,"last_seq":%d}`, first, seq)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
