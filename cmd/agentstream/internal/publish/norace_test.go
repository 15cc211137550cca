//go:build !race

package publish

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// Files may be larger than memory: what is held does not grow with them, whether they are many events,
// many messages or one message without end.
func TestPublishHoldsLittle(t *testing.T) {
	const size = 40 << 20
	all := stream("msg_1", strings.Repeat("x", 1000), "end_turn")
	head, rest, _ := strings.Cut(all, "event: content_block_delta")
	delta, tail, _ := strings.Cut(rest, "event: content_block_stop")
	for name, in := range map[string]io.Reader{
		"native":           endless("", clitest.Text(strings.Repeat("x", 1000))+"\n", "", size),
		"native list":      endless("["+clitest.Text("a"), ","+clitest.Text(strings.Repeat("x", 1000))+"\n", "]", size),
		"anthropic":        endless("", all, "", size),
		"one long message": endless(head, "event: content_block_delta"+delta, "event: content_block_stop"+tail, size),
	} {
		t.Run(name, func(t *testing.T) {
			var stored int
			server := newDiscard(t, &stored)
			stop, peak := watchHeap()
			cmd := PublishCmd{ServerFlags: cli.ServerFlags{Server: server}, RunID: "r1",
				Streams: cli.Streams{In: in, Out: io.Discard, Err: io.Discard}}
			err := cmd.Run(t.Context())
			stop()
			if grown := <-peak; err != nil || stored < size*9/10 || grown > 36<<20 {
				t.Errorf("%v: %d bytes sent, %d MiB were held", err, stored, grown>>20)
			} else {
				t.Logf("%d MiB sent, %d MiB were held", stored>>20, grown>>20)
			}
		})
	}
}

func TestPublishErrorsNameFileLineAndCode(t *testing.T) {
	good := clitest.WriteFile(t, "good.ndjson", clitest.Text("a")+"\n"+clitest.Text("b")+"\n")
	for _, c := range []struct {
		name, content string
		line          int
		want          []string
		stored        int
	}{
		{"unknown type", clitest.Text("c") + "\n\n" + `{"type":"no.such","payload":{}}` + "\n", 3,
			[]string{"KAI-STREAM-PROTO-0002", "HTTP 400"}, -1},
		{"no JSON", clitest.Text("c") + "\n" + clitest.Text("d") + "\n{nope\n", 3, []string{"KAI-STREAM-PROTO-0001"}, 4},
		{"cut short", clitest.Text("c") + "\n" + `{"type":"text.delta"`, 2, []string{"KAI-STREAM-PROTO-0001"}, 3},
		{"not an object", clitest.Text("c") + "\n42\n", 2, []string{"KAI-STREAM-PROTO-0001", "not an object"}, 3},
		{"raw NUL", clitest.Text("c") + "\n\x00\n", 2, []string{"KAI-STREAM-PROTO-0001"}, 3},
		{"too large", clitest.Text("c") + "\n" + clitest.Text(strings.Repeat("x", schema.MaxEventBytes)) + "\n", 2,
			[]string{"KAI-STREAM-PROTO-0001", "too large"}, 3},
		{"without end", clitest.Text("c") + "\n" + `{"type":"` + strings.Repeat("x", 2*cli.MaxAhead), 2,
			[]string{"KAI-STREAM-PROTO-0001", "too large"}, 3},
		{"array", "[" + clitest.Text("c") + ",\n" + clitest.Text("d") + ",\n" + `{"type":"no.such"}]`, 3,
			[]string{"KAI-STREAM-PROTO-0002"}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := clitest.NewStandIn(t)
			bad := clitest.WriteFile(t, "bad.ndjson", c.content)
			_, _, err := publish(t, s, PublishCmd{RunID: "r1", Files: []string{good, bad}})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, fmt.Sprintf("%s:%d: ", bad, c.line), "run r1") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			n := len(s.Lines("r1"))
			if c.stored >= 0 && n != c.stored {
				t.Errorf("%d events stored, want the %d before the bad one", n, c.stored)
			}
			if n > 0 && !strings.Contains(err.Error(), fmt.Sprintf("the newest has seq %d", n)) {
				t.Errorf("error %q does not say that %d are stored", err, n)
			}
		})
	}
}

func TestRecognise(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"x", clitest.Text("a"), "native, JSON lines"},
		{"x", `{"payload":{"text":"` + strings.Repeat("x", 300<<10) + `"},"type":"text.delta"}`, "native, JSON lines"},
		{"x", "{\n \"type\": \"text.delta\",\n \"payload\": {}\n}", "native, JSON"},
		{"x", "\xef\xbb\xbf\n [\n" + clitest.Text("a") + "]", "native, JSON list"},
		{"x", `{"type":"no.such","payload":{}}`, "native, JSON lines"},
		{"x", "", "native, empty"},
		{"x", " \r\n\n", "native, empty"},
		{"gemini/a.sse", "", "gemini, empty (by its name)"},
		{"x", ": hello\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\ndata: {\"type\":\"message_start\"}\n\n",
			"anthropic, server-sent events"},
		{"x", "event: x\rdata: {\"type\":\"ping\"}\r\rdata:{\"type\":\"message_stop\"}\r\r", "anthropic, server-sent events"},
		{"x", `{"id":"msg_1","type":"message","role":"assistant","content":[]}`, "anthropic, JSON lines"},
		{"x", `{"type":"error","error":{"type":"overloaded_error"}}`, "anthropic, JSON lines"},
		{"x", `{"type":"error","sequence_number":1,"code":"x"}`, "openai-responses, JSON lines"},
		{"x", "{\n  \"id\": \"resp_1\",\n  \"object\": \"response\",\n  \"output\": []\n}", "openai-responses, JSON"},
		{"x", `{"object":"chat.completion","choices":[]}`, "openai-chat, JSON lines"},
		{"x", ": OPENROUTER PROCESSING\n\ndata: {\"choices\":[]}\n\n", "openai-chat, server-sent events"},
		{"x", "[{\n  \"candidates\": [ {} ]\n}\n,\r\n{}]", "gemini, JSON list"},
		{"x", `{"promptFeedback":{"blockReason":"SAFETY"}}`, "gemini, JSON lines"},
		{"openai-chat/x.sse", "data: {\"error\":{\"message\":\"no\"}}\n\n", "openai-chat, server-sent events (by its name)"},
		{"tmp/run.gemini.json", `{"error":{"code":429}}`, "gemini, JSON lines (by its name)"},
		{"gemini/x.jsonl", clitest.Text("a"), "native, JSON lines"}, // the content counts more
		{"x", `{"error":{"code":429}}`, ""},
		{"x", "data: {\"hello\":1}\n\n", ""},
		{"anthropic/x", "<html><h1>502</h1>", ""},
		{"x", "[1,2,3]", ""},
		{"x", strings.Repeat(`{"a":`, 400_000), ""},
		{"x", `{"a":"` + strings.Repeat("x", 3<<20), ""},
		{"x", "\x00\x01\x02", ""},
	} {
		got, err := recognise(strings.NewReader(c.content), c.name)
		switch {
		case c.want == "":
			if !errors.Is(err, errUnrecognised) {
				t.Errorf("%.60q is %+v, %v", c.content, got, err)
			}
		case err != nil || got.words("") != c.want:
			t.Errorf("%.60q is %v, %v, want %s", c.content, got.kind, err, c.want)
		}
	}
	got, _ := recognise(strings.NewReader(clitest.Text("a")), "x")
	if w := got.words("gzip"); w != "native, JSON lines, gzip" {
		t.Error(w)
	}
}
