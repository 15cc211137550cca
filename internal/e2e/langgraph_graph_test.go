package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/protocols/langgraph/langgraphtest"
)

// threadNow reads all events of a thread up to now, as JSON lines.
func threadNow(t *testing.T, base, thread string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/threads/"+thread+"/stream/events",
		strings.NewReader(langgraphtest.Everything))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var lines bytes.Buffer
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v\n%s", err, tail(lines.String(), 2000))
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			lines.Write(data)
		}
		if bytes.HasPrefix(line, []byte(": replayed ")) {
			return lines.Bytes()
		}
	}
}

// TestRealGraph: a graph of @langchain/langgraph that runs now, published as it runs, comes out of a server as it went
// in; so does one that fails.
func TestRealGraph(t *testing.T) {
	beside(t)
	node := needLangGraph(t, "@langchain/langgraph")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	for _, word := range []string{"all", "fails"} {
		graph := exec.CommandContext(t.Context(), node, "graph.mjs")
		graph.Dir, graph.Env = jsDir, append(os.Environ(), "GRAPH="+word)
		out, err := graph.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var in bytes.Buffer
		publish := exec.CommandContext(t.Context(), path, "publish", "--server", p.url(""), "--format", "langgraph",
			"--run", "thread_"+word, "-")
		publish.Stdin = io.TeeReader(out, &in)
		if err := graph.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := publish.CombinedOutput()
		if err := graph.Wait(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		want, err := langgraphtest.ReadSent(in.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, err := langgraphtest.ReadSent(threadNow(t, p.url(""), "thread_"+word))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range langgraphtest.Differences(want, got) {
			t.Errorf("%s: %s", word, problem)
		}
		t.Logf("%s: %d events went in, %d came out", word, len(want), len(got))
	}
}

// graphWorker starts the worker in JavaScript, and returns what kills it.
func graphWorker(t *testing.T, node string, p *proc) (kill func()) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	graph, err := filepath.Abs(filepath.Join(jsDir, "graph.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	var said lockedBuffer
	worker := exec.Command(node, filepath.Join("..", "..", "clients", "ts", "examples", "langgraph-worker.mjs"), graph)
	worker.Env, worker.Stdout, worker.Stderr = append(os.Environ(), "AGENTSTREAM="+path,
		"AGENTSTREAM_SERVER="+p.url("")), &said, &said
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	t.Cleanup(func() {
		if kill(); t.Failed() {
			t.Logf("the worker:\n%s", tail(said.String(), 4000))
		}
	})
	return kill
}

// TestGraphWorker: the worker in JavaScript answers threads of LangGraph's SDK with a real graph.
func TestGraphWorker(t *testing.T) {
	beside(t)
	node := needLangGraph(t, "@langchain/langgraph")
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	graphWorker(t, node, p)
	script(t, node, "graph-threads.mjs", "BASE="+p.url(""), "OTHER="+p.url("/langgraph"))
}

// TestGraphWorkerKilled: a run whose worker is killed in the middle is answered again by the next one, and has one end.
func TestGraphWorkerKilled(t *testing.T) {
	beside(t)
	node := needLangGraph(t, "@langchain/langgraph")
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	kill := graphWorker(t, node, p)
	resp, err := http.Post(p.url("/threads/thread_k/commands"), "application/json",
		strings.NewReader(`{"id":1,"method":"run.start","params":{"assistant_id":"graph","input":{"messages":[{"role":"user","content":"long"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	waits := func(what string) []byte {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			now := threadNow(t, p.url(""), "thread_k")
			if bytes.Contains(now, []byte(what)) {
				return now
			}
			if time.Now().After(end) {
				t.Fatalf("no %s in\n%s", what, tail(string(now), 4000))
			}
		}
	}
	if now := waits(`"type":"text-delta","text":"word "`); bytes.Contains(now, []byte("completed")) {
		t.Fatal("the run has ended before the worker was killed")
	}
	kill()
	graphWorker(t, node, p)
	all := waits(`"event":"completed","graph_name":"graph"`)
	if n := bytes.Count(all, []byte(`"event_id":"synth:`)); n != 2 {
		t.Errorf("%d events of the run's own life, want running and completed\n%s", n, tail(string(all), 3000))
	}
	if n := bytes.Count(all, []byte(`"event":"message-finish","reason":"stop"`)); n != 1 {
		t.Errorf("%d whole answers", n)
	}
}
