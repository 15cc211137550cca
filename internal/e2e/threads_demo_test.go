package e2e_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestThreadsDemo: run.start against dev shows all nine channels; the interrupt is answered, and the thread goes on.
func TestThreadsDemo(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--demo-script", "quick", "--demo-speed", "0")
	p.start()
	send := func(body string) string {
		t.Helper()
		resp, err := http.Post(p.url("/threads/nine/commands"), "application/json", strings.NewReader(body)) // of this test
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Contains(text, []byte(`"type":"success"`)) {
			t.Fatalf("%s: %v %s", body, err, text)
		}
		return string(text)
	}
	send(`{"id":1,"method":"run.start","params":{"assistant_id":"agent","input":{"messages":[{"type":"human","content":"think, use a tool, then interrupt"}]}}}`)
	resp, err := http.Post(p.url("/threads/nine/stream/events"), "application/json", // of this test
		strings.NewReader(`{"channels":["lifecycle","messages","tools","input","values","updates","checkpoints","tasks","custom"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seen, ends := map[string]bool{}, 0
	for lines := bufio.NewScanner(resp.Body); ends < 2 && lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			channel, _, _ := strings.Cut(name, ".")
			seen[channel] = true
		}
		switch text := lines.Text(); {
		case strings.Contains(text, `"event":"interrupted"`):
			ends++
			send(`{"id":2,"method":"input.respond","params":{"namespace":[],"interrupt_id":"ask_2","response":"yes"}}`)
		case strings.Contains(text, `"method":"lifecycle"`) && strings.Contains(text, `"event":"completed"`):
			ends++
		}
	}
	if len(seen) != 9 || ends != 2 {
		t.Errorf("channels %v, %d ends", seen, ends)
	}
}
