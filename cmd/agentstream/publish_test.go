package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/schema"
)

func text(s string) string { return fmt.Sprintf(`{"type":"text.delta","payload":{"text":%q}}`, s) }

// writeFile returns the path of a file with this content.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// publish runs the command against the stand-in.
func publish(t *testing.T, s *standIn, cmd PublishCmd) (stdout, stderr string, err error) {
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
		{"NDJSON", text("a") + "\n" + odd + "\n" + text("b") + "\n"},
		{"NDJSON without last line end, blank lines, CRLF", "\n" + text("a") + "\r\n\r\n" + odd + "\n\n\n" + text("b")},
		{"array", "[" + text("a") + "," + odd + "," + text("b") + "]"},
		{"array over lines", "\n [\n" + text("a") + "\n,\n" + odd + ",\n " + text("b") + "\n]\n"},
		{"byte order mark", "\xef\xbb\xbf" + text("a") + "\n" + odd + "\n" + text("b")},
		{"without line ends", text("a") + odd + " " + text("b")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t)
			stdout, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{writeFile(t, "in", c.content)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if got := payloads(t, s.lines("r1")); !slices.Equal(got, want) {
				t.Fatalf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !strings.HasPrefix(stdout, "run=r1 first_seq=1 last_seq=3 events=3 seconds=") || strings.Count(stdout, "\n") != 1 {
				t.Errorf("summary %q", stdout)
			}
		})
	}
}

func TestPublishPrettyPrintedEvents(t *testing.T) {
	s := newStandIn(t)
	in := "{\n  \"type\": \"text.delta\",\n  \"payload\": {\n    \"text\": \"a\\n b\"\n  }\n}\n" + text("c")
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Streams: Streams{In: strings.NewReader(in)}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if got := payloads(t, s.lines("r1")); !slices.Equal(got, []string{`text.delta{"text":"a\n b"}`, `text.delta{"text":"c"}`}) {
		t.Fatalf("stored %q", got)
	}
}

func TestPublishBatches(t *testing.T) {
	big := text(strings.Repeat("x", 200<<10))
	var in strings.Builder
	for i := range 1234 {
		in.WriteString(text(fmt.Sprint(i)) + "\n")
	}
	for range 7 {
		in.WriteString(big + "\n")
	}
	s := newStandIn(t)
	stdout, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{writeFile(t, "in", in.String())}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	keys := map[string]bool{}
	for _, r := range s.log() {
		if r.events > maxBatchEvents || len(r.body) > maxBatchBytes {
			t.Errorf("a request has %d events in %d bytes", r.events, len(r.body))
		}
		if r.key == "" || keys[r.key] {
			t.Errorf("key %q is not fresh", r.key)
		}
		keys[r.key] = true
	}
	got := payloads(t, s.lines("r1"))
	if len(got) != 1241 || got[1233] != `text.delta{"text":"1233"}` || len(got[1240]) != len(big)-len(`{"type":"","payload":}`) {
		t.Fatalf("%d events, %s", len(got), stdout)
	}
}

// An answer that is lost after the events were stored is the case that idempotency keys are for.
func TestPublishIsExactlyOnceWhenAnswersAreLost(t *testing.T) {
	s := newStandIn(t)
	var in strings.Builder
	for i := range 3000 {
		in.WriteString(text(fmt.Sprint(i)) + "\n")
	}
	lost := 0
	s.after = func(n int) bool {
		if n%2 == 0 { // half of all batches
			lost++
			return true
		}
		return false
	}
	refused := 0
	s.before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n%5 == 3 {
			refused++
			problem(w, http.StatusServiceUnavailable, "CONFLICT", "other writers were faster", 0)
			return true
		}
		return false
	}
	_, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{writeFile(t, "in", in.String())}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if lost == 0 || refused == 0 {
		t.Fatalf("%d answers lost, %d requests refused: the faults did not happen", lost, refused)
	}
	got := payloads(t, s.lines("r1"))
	if len(got) != 3000 {
		t.Fatalf("%d events stored, want 3000", len(got))
	}
	for i, g := range got {
		if g != fmt.Sprintf(`text.delta{"text":"%d"}`, i) {
			t.Fatalf("seq %d is %s", i+1, g)
		}
	}
}

func TestPublishErrorsNameFileLineAndCode(t *testing.T) {
	good := writeFile(t, "good.ndjson", text("a")+"\n"+text("b")+"\n")
	for _, c := range []struct {
		name, content string
		line          int
		want          []string
		stored        int
	}{
		{"unknown type", text("c") + "\n\n" + `{"type":"no.such","payload":{}}` + "\n", 3, []string{"KAI-STREAM-PROTO-0002", "HTTP 400"}, -1},
		{"no JSON", text("c") + "\n" + text("d") + "\n{nope\n", 3, []string{"KAI-STREAM-PROTO-0001"}, 4},
		{"cut short", text("c") + "\n" + `{"type":"text.delta"`, 2, []string{"KAI-STREAM-PROTO-0001"}, 3},
		{"not an object", text("c") + "\n42\n", 2, []string{"KAI-STREAM-PROTO-0001", "not an object"}, 3},
		{"raw NUL", text("c") + "\n\x00\n", 2, []string{"KAI-STREAM-PROTO-0001"}, 3},
		{"too large", text("c") + "\n" + text(strings.Repeat("x", schema.MaxEventBytes)) + "\n", 2, []string{"KAI-STREAM-PROTO-0001", "too large"}, 3},
		{"without end", text("c") + "\n" + `{"type":"` + strings.Repeat("x", 2*maxAhead), 2, []string{"KAI-STREAM-PROTO-0001", "too large"}, 3},
		{"array", "[" + text("c") + ",\n" + text("d") + ",\n" + `{"type":"no.such"}]`, 3, []string{"KAI-STREAM-PROTO-0002"}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t)
			bad := writeFile(t, "bad.ndjson", c.content)
			_, _, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{good, bad}})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, fmt.Sprintf("%s:%d: ", bad, c.line), "run r1") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			n := len(s.lines("r1"))
			if c.stored >= 0 && n != c.stored {
				t.Errorf("%d events stored, want the %d before the bad one", n, c.stored)
			}
			if n > 0 && !strings.Contains(err.Error(), fmt.Sprintf("the newest has seq %d", n)) {
				t.Errorf("error %q does not say that %d are stored", err, n)
			}
		})
	}
}

func TestPublishChecksBeforeSending(t *testing.T) {
	s := newStandIn(t)
	file := writeFile(t, "in", text("a"))
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
		{PublishCmd{ServerFlags: ServerFlags{TokenFile: "no-such-token"}, RunID: "r1", Files: []string{file}}, "--token-file"},
		{PublishCmd{ServerFlags: ServerFlags{Token: "a\nb"}, RunID: "r1", Files: []string{file}}, "--token"},
	} {
		if _, _, err := publish(t, s, c.cmd); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one that names %s", c.cmd, err, c.want)
		}
	}
	for _, server := range []string{"", "localhost:8080", "ftp://x", "http://", "http://u:p@x", "http://x?a=b", "http://x#f"} {
		cmd := PublishCmd{ServerFlags: ServerFlags{Server: server}, RunID: "r1", Files: []string{file}, Streams: Streams{Err: io.Discard}}
		if err := cmd.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--server") {
			t.Errorf("server %q: error %v", server, err)
		}
	}
	if n := len(s.log()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestPublishMintsRunAndAuthenticates(t *testing.T) {
	s := newStandIn(t)
	s.token = "sesame"
	token := writeFile(t, "token", "sesame\n")
	stdout, stderr, err := publish(t, s, PublishCmd{ServerFlags: ServerFlags{TokenFile: token}, Streams: Streams{In: strings.NewReader(text("a"))}})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.Contains(stderr, "run run_minted_1\n") || !strings.HasPrefix(stdout, "run=run_minted_1 first_seq=1 last_seq=2 events=2 ") {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
	if strings.Contains(stdout+stderr, "sesame") {
		t.Error("the token is printed")
	}
	_, _, err = publish(t, s, PublishCmd{RunID: "r1", Streams: Streams{In: strings.NewReader(text("a"))}})
	if err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("without token: %v", err)
	}
	if n := len(s.lines("r1")); n != 0 {
		t.Errorf("%d events stored without token", n)
	}
}

func TestPublishNamesChild(t *testing.T) {
	s := newStandIn(t)
	in := text("a") + "\n" + `{"child_id":null,"type":"text.delta","payload":{"text":"b"}}` + "\n" + `{"child_id":"c2","type":"text.delta","payload":{"text":"c"}}`
	if _, stderr, err := publish(t, s, PublishCmd{RunID: "r1", Child: "c1", Streams: Streams{In: strings.NewReader(in)}}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var got []string
	for _, line := range s.lines("r1") {
		r, _ := schema.ScanLine([]byte(line))
		got = append(got, string(r.Child)+string(r.Payload()))
	}
	if want := []string{`c1{"text":"a"}`, `c1{"text":"b"}`, `c2{"text":"c"}`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A live pipe: an event must not wait for the next one to be sent.
func TestPublishSendsLiveInputAtOnce(t *testing.T) {
	s := newStandIn(t)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := publish(t, s, PublishCmd{RunID: "r1", Streams: Streams{In: r}})
		done <- err
	}()
	for i := 1; i <= 3; i++ {
		fmt.Fprintln(w, text("x"))
		waitFor(t, func() bool { return len(s.lines("r1")) == i })
	}
	w.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// waitFor polls for something that another process or goroutine does.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not happen within 10 s")
		}
	}
}

func TestPublishStopsWhenAsked(t *testing.T) {
	s := newStandIn(t)
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := PublishCmd{ServerFlags: ServerFlags{Server: s.URL}, RunID: "r1", Pace: "none", Streams: Streams{In: r, Out: io.Discard, Err: io.Discard}}
	done := make(chan error, 1)
	go func() { done <- cmd.Run(ctx) }()
	for i := 1; i <= 2; i++ { // the second is sent when the first is answered
		fmt.Fprintln(w, text("x"))
		waitFor(t, func() bool { return len(s.lines("r1")) == i })
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the newest has seq ") {
		t.Errorf("error %v", err)
	}
}

func TestPublishKeepsOriginalPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)) }
		p := &publishing{cmd: &PublishCmd{Pace: "original", MaxGap: 5 * time.Second}, meter: newPublishMeter(io.Discard, Screen{}, -1)}
		var got []time.Duration
		start := time.Now()
		out := p.paced(t.Context(), func(item) error { got = append(got, time.Since(start)); return nil })
		for _, it := range []item{{at: at(0)}, {at: at(250)}, {}, {at: at(1000)}, {at: at(900)}, {at: at(3_600_900)}, {at: at(3_601_000)}} {
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
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			m := newPublishMeter(&b, Screen{Terminal: terminal}, 1000)
			m.show(1)
			if b.Len() != 0 {
				t.Errorf("drawn at once: %q", b.String())
			}
			time.Sleep(2 * time.Second)
			m.read.Write(make([]byte, 500))
			m.show(100)
			m.notice("hello")
			m.clear()
			want := "agentstream: hello\n"
			if terminal {
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
	waitFor(t, func() bool { return taken.Load() == maxBatchEvents+1 })
	if b := <-batches; len(b.items) != maxBatchEvents {
		t.Errorf("%d events in the first batch", len(b.items))
	}
	waitFor(t, func() bool { return taken.Load() == 2*maxBatchEvents+1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
