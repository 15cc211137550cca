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
	"testing"
	"time"

	"agentstream/edge/dialect/langchain/langchaintest"
)

// threadNow reads all events of a thread up to now, as JSON lines.
func threadNow(t *testing.T, base, thread string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/threads/"+thread+"/stream/events", strings.NewReader(langchaintest.Everything))
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

// TestRealGraph: a graph of @langchain/langgraph that runs now, published as it runs, comes out of a server as it went in; so does
// one that fails.
func TestRealGraph(t *testing.T) {
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
		publish := exec.CommandContext(t.Context(), path, "publish", "--server", p.url(""), "--format", "langgraph", "--run", "thread_"+word, "-")
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
		want, err := langchaintest.ReadSent(in.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, err := langchaintest.ReadSent(threadNow(t, p.url(""), "thread_"+word))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range langchaintest.Differences(want, got) {
			t.Errorf("%s: %s", word, problem)
		}
		t.Logf("%s: %d events went in, %d came out", word, len(want), len(got))
	}
}

// TestGraphWorker: the worker in JavaScript answers threads of LangGraph's SDK with a real graph.
func TestGraphWorker(t *testing.T) {
	node := needLangGraph(t, "@langchain/langgraph")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	graph, err := filepath.Abs(filepath.Join(jsDir, "graph.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	var said lockedBuffer
	worker := exec.Command(node, filepath.Join("..", "..", "clients", "ts", "examples", "langgraph-worker.mjs"), graph)
	worker.Env, worker.Stdout, worker.Stderr = append(os.Environ(), "AGENTSTREAM="+path, "AGENTSTREAM_SERVER="+p.url("")), &said, &said
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
		if t.Failed() {
			t.Logf("the worker:\n%s", tail(said.String(), 4000))
		}
	}()
	script(t, node, "graph-threads.mjs", "BASE="+p.url(""), "OTHER="+p.url("/langgraph"))
}
