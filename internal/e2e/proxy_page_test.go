package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// printed returns the commands that a page shows behind "$ ", with the lines that belong to them, and what each is said
// to print.
func printed(t *testing.T, page string) (commands, answers []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```\n(\\$ .*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		for _, c := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			lines, n := strings.Split(c, "\n"), 1
			for n < len(lines) && (strings.HasSuffix(lines[n-1], `\`) || strings.HasPrefix(lines[n], "      ") &&
				strings.Contains(lines[0], "() {")) {
				n++
			}
			commands, answers = append(commands, strings.Join(lines[:n], "\n")), append(answers, strings.Join(lines[n:], "\n"))
		}
	}
	return commands, answers
}

// pelican is an API that knows one key and one answer.
func pelican(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "right" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{
			`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[],"stop_reason":null,"usage":{"input_tokens":17,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"- Captain\n- Scoop"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":10}}`,
			`{"type":"message_stop"}`,
		} {
			typ := regexp.MustCompile(`"type":"(\w+)"`).FindStringSubmatch(e)[1]
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", typ, e)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestProxyPage runs the first example of docs/proxy.md as it is printed, beside a server that was started as make run
// does. Of the text only the provider's address is another one; ports come from the environment.
func TestProxyPage(t *testing.T) {
	beside(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Mkdir(folder+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, folder+"/bin/agentstream"); err != nil {
		t.Fatal(err)
	}
	dev := newProc(t, "dev", "--data", t.TempDir(), "--no-demo")
	dev.start()
	commands, answers := printed(t, "../../docs/proxy.md")
	if len(commands) < 6 || !strings.HasPrefix(commands[0], "bin/agentstream record ") ||
		!strings.HasPrefix(commands[5], "bin/agentstream tail") {
		t.Fatalf("the page shows %q", commands)
	}
	recordExample := commands[0]
	commands, answers = commands[1:], answers[1:]
	listen, upstream := testkit.FreeAddr(t), pelican(t)
	own := strings.NewReplacer("https://api.anthropic.com", upstream.URL, "127.0.0.1:8080", dev.addr, "127.0.0.1:8090",
		listen, "python my_agent.py", "sh my_agent.sh").Replace
	shell := func(text string) *exec.Cmd {
		cmd := command("/bin/bash", "-c", own(text))
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "KEY=right", "AGENTSTREAM_SERVER=http://"+dev.addr,
			"AGENTSTREAM_PROXY_LISTEN="+listen, "AGENTSTREAM_PROXY_ADMIN_LISTEN="+testkit.FreeAddr(t))
		return cmd
	}
	agent := `curl -s "$ANTHROPIC_BASE_URL/v1/messages" -H "X-Api-Key: $KEY" -d '{"messages":[{"role":"user","content":"hi"}]}'`
	if err := os.WriteFile(folder+"/my_agent.sh", []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := shell("export ANTHROPIC_BASE_URL=https://api.anthropic.com; " + recordExample).CombinedOutput()
	run := regexp.MustCompile(`agentstream: recording run (run_\w+): http://` + dev.addr +
		`/console/#/run/run_`).FindSubmatch(out)
	if err != nil || run == nil {
		t.Fatalf("%s: %v\n%s", recordExample, err, out)
	}
	if out, err := shell("bin/agentstream tail --exit-status " + string(run[1])).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "Captain") {
		t.Errorf("%v\n%s", err, out)
	}
	proxy, log := shell("exec "+commands[0]), &lockedBuffer{}
	proxy.Stdout, proxy.Stderr = log, log
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Process.Kill(); _ = proxy.Wait() })
	eventually(t, 20*time.Second, "the proxy listens", func() bool {
		c, err := net.Dial("tcp", listen)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for i := 2; i < 5; i++ {
		out, err := shell(commands[1] + "\n" + commands[i]).CombinedOutput()
		got := strings.ReplaceAll(string(out), "\r", "")
		times := regexp.MustCompile(`(?m)^ *[0-9.]+s `)
		for want := range strings.SplitSeq(answers[i], "\n") {
			want = strings.TrimSpace(times.ReplaceAllString(want, ""))
			if want != "…" && !strings.Contains(got, want) {
				t.Errorf("%s (%v) does not print %q:\n%s", commands[i], err, want, got)
			}
		}
	}
	if t.Failed() {
		t.Logf("proxy:\n%s", tail(log.String(), 4000))
	}
}
