package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// publish runs the command against the stand-in.
func publish(t *testing.T, s *clitest.StandIn, cmd PublishCmd) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Server, cmd.Out, cmd.Err = s.URL, &out, &errs
	if cmd.Pace == "" {
		cmd.Pace = "none"
	}
	err = cmd.Run(t.Context())
	return out.String(), errs.String(), err
}

// payloads returns what is stored, without envelopes.
func payloads(t *testing.T, lines []string) []string {
	t.Helper()
	var got []string
	for i, line := range lines {
		r, err := schema.ScanLine([]byte(line))
		if err != nil || int(r.Seq) != i+1 {
			t.Fatalf("line %d: seq %d, %v: %s", i, r.Seq, err, line)
		}
		got = append(got, string(r.Type)+string(r.Payload()))
	}
	return got
}

func TestPublishNativeForms(t *testing.T) {
	// Payload bytes that a decoder and encoder would change must arrive as they are.
	const odd = `{"type":"custom.odd","payload":{"b":1.0,"a":1e2,"z":"\u0000\ud800\u003c","big":123456789012345678901,"a b":[ 1 , 2 ]}}`
	const oddStored = `custom.odd{"b":1.0,"a":1e2,"z":"\u0000\ud800\u003c","big":123456789012345678901,"a b":[ 1 , 2 ]}`
	want := []string{`text.delta{"text":"a"}`, oddStored, `text.delta{"text":"b"}`}
	for _, c := range []struct{ name, content string }{
		{"NDJSON", clitest.Text("a") + "\n" + odd + "\n" + clitest.Text("b") + "\n"},
		{"NDJSON without last line end, blank lines, CRLF",
			"\n" + clitest.Text("a") + "\r\n\r\n" + odd + "\n\n\n" + clitest.Text("b")},
		{"array", "[" + clitest.Text("a") + "," + odd + "," + clitest.Text("b") + "]"},
		{"array over lines", "\n [\n" + clitest.Text("a") + "\n,\n" + odd + ",\n " + clitest.Text("b") + "\n]\n"},
		{"byte order mark", "\xef\xbb\xbf" + clitest.Text("a") + "\n" + odd + "\n" + clitest.Text("b")},
		{"without line ends", clitest.Text("a") + odd + " " + clitest.Text("b")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			stdout, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{clitest.WriteFile(t, "in", c.content)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if got := payloads(t, s.Lines("r1")); !slices.Equal(got, want) {
				t.Fatalf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !strings.HasPrefix(stdout, "run=r1 first_seq=1 last_seq=3 events=3 seconds=") ||
				strings.Count(stdout, "\n") != 1 {
				t.Errorf("summary %q", stdout)
			}
		})
	}
}

func TestPublishPrettyPrintedEvents(t *testing.T) {
	s := clitest.NewStandIn(t)
	in := "{\n  \"type\": \"text.delta\",\n  \"payload\": {\n    \"text\": \"a\\n b\"\n  }\n}\n" + clitest.Text("c")
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1",
		Streams: cli.Streams{In: strings.NewReader(in)}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if got := payloads(t, s.Lines("r1")); !slices.Equal(got,
		[]string{`text.delta{"text":"a\n b"}`, `text.delta{"text":"c"}`}) {
		t.Fatalf("stored %q", got)
	}
}

func TestPublishBatches(t *testing.T) {
	big := clitest.Text(strings.Repeat("x", 200<<10))
	var in strings.Builder
	for i := range 1234 {
		in.WriteString(clitest.Text(fmt.Sprint(i)) + "\n")
	}
	for range 7 {
		in.WriteString(big + "\n")
	}
	s := clitest.NewStandIn(t)
	stdout, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{clitest.WriteFile(t, "in", in.String())}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	keys := map[string]bool{}
	for _, r := range s.Log() {
		if r.Events > MaxBatchEvents || len(r.Body) > MaxBatchBytes {
			t.Errorf("a request has %d events in %d bytes", r.Events, len(r.Body))
		}
		if r.Key == "" || keys[r.Key] {
			t.Errorf("key %q is not fresh", r.Key)
		}
		keys[r.Key] = true
	}
	got := payloads(t, s.Lines("r1"))
	if len(got) != 1241 || got[1233] != `text.delta{"text":"1233"}` ||
		len(got[1240]) != len(big)-len(`{"type":"","payload":}`) {
		t.Fatalf("%d events, %s", len(got), stdout)
	}
}

// An answer that is lost after the events were stored is the case that idempotency keys are for.
func TestPublishIsExactlyOnceWhenAnswersAreLost(t *testing.T) {
	s := clitest.NewStandIn(t)
	var in strings.Builder
	for i := range 3000 {
		in.WriteString(clitest.Text(fmt.Sprint(i)) + "\n")
	}
	lost := 0
	s.After = func(n int) bool {
		if n%2 == 0 { // half of all batches
			lost++
			return true
		}
		return false
	}
	refused := 0
	s.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n%5 == 3 {
			refused++
			clitest.Problem(w, http.StatusServiceUnavailable, "CONFLICT", "other writers were faster", 0)
			return true
		}
		return false
	}
	_, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{clitest.WriteFile(t, "in", in.String())}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if lost == 0 || refused == 0 {
		t.Fatalf("%d answers lost, %d requests refused: the faults did not happen", lost, refused)
	}
	got := payloads(t, s.Lines("r1"))
	if len(got) != 3000 {
		t.Fatalf("%d events stored, want 3000", len(got))
	}
	for i, g := range got {
		if g != fmt.Sprintf(`text.delta{"text":"%d"}`, i) {
			t.Fatalf("seq %d is %s", i+1, g)
		}
	}
}

func TestPublishChecksBeforeSending(t *testing.T) {
	s := clitest.NewStandIn(t)
	file := clitest.WriteFile(t, "in", clitest.Text("a"))
	for _, c := range []struct {
		cmd  PublishCmd
		want string
	}{
		{PublishCmd{RunID: "a.b", Files: []string{file}}, "--run"},
		{PublishCmd{RunID: "r1", Child: "*", Files: []string{file}}, "--child"},
		{PublishCmd{RunID: "r1", Child: "r1", Files: []string{file}}, "--child"},
		{PublishCmd{RunID: "r1", Files: []string{file, "no-such-file"}}, "no-such-file"},
		{PublishCmd{RunID: "r1", Files: []string{t.TempDir()}}, "is a directory"},
		{PublishCmd{RunID: "r1", Files: []string{"-", "-"}}, "only once"},
		{PublishCmd{RunID: "r1", MaxGap: -1, Files: []string{file}}, "--max-gap"},
		{PublishCmd{ServerFlags: cli.ServerFlags{TokenFile: "no-such-token"}, RunID: "r1", Files: []string{file}},
			"--token-file"},
		{PublishCmd{ServerFlags: cli.ServerFlags{Token: "a\nb"}, RunID: "r1", Files: []string{file}}, "--token"},
	} {
		if _, _, err := publish(t, s, c.cmd); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one that names %s", c.cmd, err, c.want)
		}
	}
	for _, server := range []string{"", "localhost:8080", "ftp://x", "http://", "http://u:p@x", "http://x?a=b",
		"http://x#f"} {
		cmd := PublishCmd{ServerFlags: cli.ServerFlags{Server: server}, RunID: "r1", Files: []string{file},
			Streams: cli.Streams{Err: io.Discard}}
		if err := cmd.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--server") {
			t.Errorf("server %q: error %v", server, err)
		}
	}
	if n := len(s.Log()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestPublishMintsRunAndAuthenticates(t *testing.T) {
	s := clitest.NewStandIn(t)
	s.Token = "sesame"
	token := clitest.WriteFile(t, "token", "sesame\n")
	stdout, stderr, err := publish(t, s, PublishCmd{ServerFlags: cli.ServerFlags{TokenFile: token},
		Streams: cli.Streams{In: strings.NewReader(clitest.Text("a"))}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.Contains(stderr, "run run_minted_1\n") ||
		!strings.HasPrefix(stdout, "run=run_minted_1 first_seq=1 last_seq=2 events=2 ") {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
	if strings.Contains(stdout+stderr, "sesame") {
		t.Error("the token is printed")
	}
	_, _, err = publish(t, s, PublishCmd{RunID: "r1", Streams: cli.Streams{In: strings.NewReader(clitest.Text("a"))}})
	if err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") ||
		!strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("without token: %v", err)
	}
	if n := len(s.Lines("r1")); n != 0 {
		t.Errorf("%d events stored without token", n)
	}
}

func TestPublishNamesChild(t *testing.T) {
	s := clitest.NewStandIn(t)
	in := clitest.Text("a") + "\n" + `{"child_id":null,"type":"text.delta","payload":{"text":"b"}}` + "\n" +
		`{"child_id":"c2","type":"text.delta","payload":{"text":"c"}}`
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Child: "c1",
		Streams: cli.Streams{In: strings.NewReader(in)}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var got []string
	for _, line := range s.Lines("r1") {
		r, _ := schema.ScanLine([]byte(line))
		got = append(got, string(r.Child)+string(r.Payload()))
	}
	if want := []string{`c1{"text":"a"}`, `c1{"text":"b"}`, `c2{"text":"c"}`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A live pipe: an event must not wait for the next one to be sent.
func TestPublishSendsLiveInputAtOnce(t *testing.T) {
	s := clitest.NewStandIn(t)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := publish(t, s, PublishCmd{RunID: "r1", Streams: cli.Streams{In: r}})
		done <- err
	}()
	for i := 1; i <= 3; i++ {
		fmt.Fprintln(w, clitest.Text("x"))
		clitest.WaitFor(t, func() bool { return len(s.Lines("r1")) == i })
	}
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPublishStopsWhenAsked(t *testing.T) {
	s := clitest.NewStandIn(t)
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := PublishCmd{ServerFlags: cli.ServerFlags{Server: s.URL}, RunID: "r1", Pace: "none",
		Streams: cli.Streams{In: r, Out: io.Discard, Err: io.Discard}}
	done := make(chan error, 1)
	go func() { done <- cmd.Run(ctx) }()
	for i := 1; i <= 2; i++ { // the second is sent when the first is answered
		fmt.Fprintln(w, clitest.Text("x"))
		clitest.WaitFor(t, func() bool { return len(s.Lines("r1")) == i })
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the newest has seq ") {
		t.Errorf("error %v", err)
	}
}

func TestPublishKeepsOriginalPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)) }
		p := &publishing{cmd: &PublishCmd{Pace: "original", MaxGap: 5 * time.Second},
			meter: newPublishMeter(io.Discard, terminal.Screen{}, -1)}
		var got []time.Duration
		start := time.Now()
		out := p.pace(t.Context(), func(item) error { got = append(got, time.Since(start)); return nil })
		for _, it := range []item{{at: at(0)}, {at: at(250)}, {}, {at: at(1000)}, {at: at(900)}, {at: at(3_600_900)},
			{at: at(3_601_000)}} {
			if err := out(it); err != nil {
				t.Fatal(err)
			}
		}
		ms := time.Millisecond
		want := []time.Duration{0, 250 * ms, 250 * ms, 1000 * ms, 1000 * ms, 6000 * ms, 6100 * ms}
		if !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
	})
}

func TestPublishDrawsProgressOnTerminalsOnly(t *testing.T) {
	for _, drawn := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			m := newPublishMeter(&b, terminal.Screen{Terminal: drawn}, 1000)
			m.show(1)
			if b.Len() != 0 {
				t.Errorf("drawn at once: %q", b.String())
			}
			time.Sleep(2 * time.Second)
			m.read.Write(make([]byte, 500))
			m.show(100)
			m.Notice("hello")
			m.Clear()
			want := "agentstream: hello\n"
			if drawn {
				want = "\r\x1b[K[============            ]  50% · 100 events · 500 B · 50 events/s\r\x1b[K" + want
			}
			if b.String() != want {
				t.Errorf("%q, want %q", b.String(), want)
			}
		})
	}
}

func TestCollectHoldsLittle(t *testing.T) {
	items, batches := make(chan item), make(chan *batch)
	var taken atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collect(ctx, items, batches) }()
	go func() {
		for {
			select {
			case items <- item{line: []byte("{}")}:
				taken.Add(1)
			case <-ctx.Done():
				return
			}
		}
	}()
	clitest.WaitFor(t, func() bool { return taken.Load() == MaxBatchEvents+1 })
	if b := <-batches; len(b.items) != MaxBatchEvents {
		t.Errorf("%d events in the first batch", len(b.items))
	}
	clitest.WaitFor(t, func() bool { return taken.Load() == 2*MaxBatchEvents+1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
