package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// part returns the program that the tutorial has in a file of that name.
func part(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)`" + regexp.QuoteMeta(name) +
		"`[^\n]*\n(?:[^\n`]+[^\n]*\n)*\n```[a-z]+\n(.*?)```\n").FindStringSubmatch(string(page))
	if m == nil {
		t.Fatalf("docs/tutorial.md has no program %s", name)
	}
	return m[1]
}

// TestTutorial runs the three programs of docs/tutorial.md as they stand there.
func TestTutorial(t *testing.T) {
	at := testkit.FreeAddr(t)
	shop := httptest.NewServer(http.FileServer(http.Dir(chatFolder(t))))
	defer shop.Close()
	dev(t, "curl", "--no-demo", "--data", t.TempDir(), "--listen", at, "--cors-origin", shop.URL)
	folder, call := program(t)
	server := []string{"AGENTSTREAM_SERVER=http://" + at}
	spoken := func(run string) (text, state string) {
		out, errs, status := call(server, "run", "tail", run, "--json")
		if status != 0 {
			t.Fatalf("tail %s: %s", run, errs)
		}
		for line := range strings.Lines(out) {
			var e struct {
				Type    string
				Payload struct{ Text, State string }
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == "text.delta" {
				text += e.Payload.Text
			}
			if e.Type == "run.lifecycle" {
				state = e.Payload.State
			}
		}
		return text, state
	}

	agent(t, server)
	if text, state := spoken("tutorial"); text != "Pelicans fish together, in a half circle." || state != "done" {
		t.Errorf("the agent said %q and is %s", text, state)
	}

	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, modelAnswer)
	}))
	defer model.Close()
	script := strings.ReplaceAll(part(t, "proxied.sh"), "127.0.0.1:8090", testkit.FreeAddr(t))
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
	cmd.Env = append(server, asProgram+"=1", "PATH="+folder+":"+os.Getenv("PATH"), "MODEL_URL="+model.URL,
		"ANTHROPIC_API_KEY=k")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Good day") {
		t.Errorf("proxied.sh: %v\n%s", err, out)
	}
	if text, state := spoken("proxied"); text != "HelloGood day" || state != "done" { // the question, and the answer
		t.Errorf("through the proxy the model said %q and the run is %s", text, state)
	}

	for range 2 { // opened, and opened again
		if page := testkit.DOM(t, shop.URL+"/chat.html?run=tutorial&server=http://"+at,
			20*time.Second); !strings.Contains(page, "Pelicans fish together, in a half circle.") ||
			!strings.Contains(page, `<p id="state">done</p>`) {
			t.Errorf("the page shows\n%s", page)
		}
	}
}

// driven is a page that writes into the tutorial's page, waits for the answer, and loads it again. It has not loaded
// before it is done: its image is held until then.
const driven = `<!doctype html>
<iframe id="chat" src="chat.html?server=SERVER"></iframe><pre id="first"></pre><pre id="again"></pre><img src="hold">
<script type="module">
  const frame = document.querySelector("#chat"), page = () => frame.contentDocument;
  const answered = () => new Promise((resolve) => {
    const look = () => /[a-z]/i.test(page().querySelector("#chat .assistant")?.textContent.slice(7) ?? "") && page().querySelector("#chat .user") && resolve();
    new MutationObserver(look).observe(page(), { subtree: true, childList: true, characterData: true });
    look();
  });
  const loaded = () => new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  if (page().readyState !== "complete" || page().URL === "about:blank") await loaded();
  page().querySelector("[name=say]").value = "Do pelicans fish?";
  page().querySelector("form").requestSubmit();
  await answered();
  document.querySelector("#first").textContent = page().querySelector("#chat").textContent;
  const again = loaded();
  frame.contentWindow.location.reload();
  await again;
  await answered();
  document.querySelector("#again").textContent = page().querySelector("#chat").textContent;
  frame.src = "about:blank";
  await fetch("done");
</script>`

// TestTutorialChats: the tutorial's page begins a session, shows what one has said and what the demo's agent answers,
// and the same after a reload.
func TestTutorialChats(t *testing.T) {
	at, folder := testkit.FreeAddr(t), chatFolder(t)
	if err := os.WriteFile(filepath.Join(folder, "driven.html"),
		[]byte(strings.Replace(driven, "SERVER", "http://"+at, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(folder)))
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/done", func(http.ResponseWriter, *http.Request) { close(done) })
	shop := httptest.NewServer(mux)
	defer shop.Close()
	dev(t, "curl", "--demo-script", "quick", "--demo-speed", "50", "--data", t.TempDir(), "--listen", at,
		"--cors-origin", shop.URL)
	page := testkit.DOM(t, shop.URL+"/driven.html", 0)
	for _, id := range []string{"first", "again"} {
		m := regexp.MustCompile(`(?s)<pre id="` + id + `">You: Do pelicans fish\?Agent: [^<]+</pre>`).FindString(page)
		if m == "" {
			t.Errorf("%s: the page shows\n%s", id, page)
		}
	}
}

// agent runs the tutorial's agent, which is an example of this tree.
func agent(t *testing.T, env []string) {
	t.Helper()
	source, err := os.ReadFile("../../examples/agent/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if part(t, "agent.go") != string(source) {
		t.Fatal("docs/tutorial.md does not print examples/agent/main.go as it is")
	}
	program := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/agent")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("agent.go: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Env = env
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("agent: %v\n%s", err, out)
	}
}

// chatFolder returns a folder with the tutorial's page, and the client library as the console has it.
func chatFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(filepath.Join(folder, "agentstream"), os.DirFS("../../edge/console/static/lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "chat.html"), []byte(part(t, "chat.html")), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// modelAnswer is an answer of Anthropic's Messages API with one text.
var modelAnswer = anthropicAnswer(`{"type":"text","text":""}`, `{"type":"text_delta","text":"Good day"}`, "end_turn")

// anthropicAnswer is a streamed message with one block that comes in one piece.
func anthropicAnswer(block, delta, stop string) string {
	var b strings.Builder
	for _, frame := range [][2]string{
		{"message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],` +
			`"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}`},
		{"content_block_start", `,"index":0,"content_block":` + block},
		{"content_block_delta", `,"index":0,"delta":` + delta},
		{"content_block_stop", `,"index":0`},
		{"message_delta", `,"delta":{"stop_reason":"` + stop + `"},"usage":{"output_tokens":2}`},
		{"message_stop", ""},
	} {
		_, _ = fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q%s}\n\n", frame[0], frame[0], frame[1])
	}
	return b.String()
}
