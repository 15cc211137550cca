package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// needLangGraph returns Node's program, where LangGraph's packages are installed.
func needLangGraph(t *testing.T, packages ...string) string {
	t.Helper()
	node := program(t, "node")
	for _, p := range append(packages, "@langchain/langgraph-sdk", "langgraph-sdk-1.11") {
		if _, err := os.Stat(filepath.Join(jsDir, "node_modules", p)); err != nil {
			missing(t, "the npm package "+p+" is not installed in "+jsDir)
		}
	}
	return node
}

// threadsFor are two edges, a persister, and an agent for every thread. page is an origin whose pages may come. Behind
// the two are two more that let everybody in: over a WebSocket the library sends no credential.
func threadsFor(t *testing.T, page string) world {
	t.Helper()
	w := edgesFor(t, page)
	for range 2 {
		p := newProc(t, "edge", "--nats", w.nats, "--cors-origin", page, "--insecure-no-auth")
		p.args = slices.DeleteFunc(p.args, func(a string) bool { return a == "--auth-token" || a == edgeToken })
		p.env = []string{"AGENTSTREAM_POSTGRES=" + w.postgres}
		p.start()
		w.edges = append(w.edges, p)
	}
	serveRuns(t, w.nats, "", serveThread)
	return w
}

// envOf returns what a script reads of which edges it is for, and what they want to see.
func envOf(w world, transport string, env ...string) []string {
	edges, token := w.edges[:2], edgeToken
	if transport == "websocket" {
		edges, token = w.edges[2:], ""
	}
	return append(env, "TRANSPORT="+transport, "TOKEN="+token, "BASE="+edges[0].url(""),
		"OTHER="+edges[1].url("/langgraph"))
}

// script runs one on Node, which says "ok" when all is well.
func script(t *testing.T, node, name string, env ...string) {
	t.Helper()
	if err := scriptErr(t.Context(), node, name, env...); err != nil {
		t.Fatal(err)
	}
}

// scriptErr is script beside the test's own goroutine.
func scriptErr(ctx context.Context, node, name string, env ...string) error {
	cmd := exec.CommandContext(ctx, node, name)
	cmd.Dir, cmd.Env, cmd.WaitDelay = jsDir, append(os.Environ(), env...), time.Second
	kill := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
		return fmt.Errorf("%s: %v\n%s", name, err, tail(string(out), 4000))
	}
	return nil
}

// TestLangGraphSDK: the npm library of LangGraph, unmodified, in two versions, over both transports, with one thread on
// two nodes: messages, calls, values, subagents, custom events, questions and answers, a cancel, several runs, several
// observers, one who comes late, one who is cut.
func TestLangGraphSDK(t *testing.T) {
	beside(t)
	node := needLangGraph(t)
	w := threadsFor(t, "http://127.0.0.1:1")
	for _, sdk := range []string{"@langchain/langgraph-sdk", "langgraph-sdk-1.11"} {
		for _, transport := range []string{"sse", "websocket"} {
			t.Run(sdk+" "+transport, func(t *testing.T) {
				t.Parallel()
				script(t, node, "threads.mjs", envOf(w, transport, "SDK="+sdk)...)
			})
		}
		t.Run(sdk+" legacy", func(t *testing.T) {
			t.Parallel()
			script(t, node, "threads-legacy.mjs", envOf(w, "sse", "SDK="+sdk)...)
		})
		t.Run(sdk+" pause", func(t *testing.T) {
			t.Parallel()
			script(t, node, "threads-pause.mjs", "TRANSPORT=websocket", "SDK="+sdk)
		})
	}
}

// TestUseStream: pages with LangGraph's React hooks, the newer over both transports and the older, reloaded in the
// middle of a run.
func TestUseStream(t *testing.T) {
	beside(t)
	node := needLangGraph(t, "@langchain/react", "react-dom", "esbuild", "puppeteer-core")
	chromium := program(t, "chromium")
	dir := t.TempDir()
	build := exec.Command(filepath.Join("node_modules", ".bin", "esbuild"), "threads-page.jsx", "--bundle",
		"--outfile="+filepath.Join(dir, "page.js"),
		`--define:process.env.NODE_ENV="production"`, "--jsx=automatic", "--log-level=error")
	build.Dir = jsDir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page.js" {
			http.ServeFile(rw, r, filepath.Join(dir, "page.js"))
			return
		}
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = rw.Write([]byte(`<!doctype html><div id="root"></div><script src="/page.js"></script>`))
	}))
	defer pages.Close()
	w := threadsFor(t, pages.URL)
	for _, c := range []struct{ hook, transport string }{{"newer", "sse"}, {"newer", "websocket"}, {"older", "sse"}} {
		t.Run(c.hook+" "+c.transport, func(t *testing.T) {
			script(t, node, "threads-page.mjs", envOf(w, c.transport, "HOOK="+c.hook, "PAGE="+pages.URL+"/",
				"CHROMIUM="+chromium, "PROFILE="+t.TempDir())...)
		})
	}
}

// TestLangGraphTable: every row of the table of clients in docs/dialects/langchain.md, on two edges and on dev.
func TestLangGraphTable(t *testing.T) {
	beside(t)
	node := needLangGraph(t)
	t.Run("edges", func(t *testing.T) {
		t.Parallel()
		script(t, node, "threads-compare.mjs", envOf(threadsFor(t, "http://127.0.0.1:1"), "websocket")...)
	})
	t.Run("dev", func(t *testing.T) {
		t.Parallel()
		nats := testkit.FreeAddr(t)
		p := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--nats-listen", nats)
		p.start()
		serveRuns(t, "nats://"+nats, "", serveThread)
		script(t, node, "threads-compare.mjs", "TOKEN=", "BASE="+p.url("/langgraph"), "OTHER="+p.url(""))
	})
}
