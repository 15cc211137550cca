package e2e_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exampleDir has the example pages and their packages.
const exampleDir = "../../examples/web"

// servePages builds the example pages as their readme says, and serves them and the one that needs no building.
func servePages(t *testing.T) string {
	t.Helper()
	vite := filepath.Join(exampleDir, "node_modules", ".bin", "vite")
	if _, err := os.Stat(vite); err != nil {
		missing(t, "the packages of "+exampleDir+" are not installed")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "vite"), "build", "--outDir", dir,
		"--emptyOutDir", "--logLevel", "error")
	build.Dir = exampleDir
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := os.CopyFS(filepath.Join(dir, "page"), os.DirFS("../../examples/page")); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(web.Close)
	return web.URL
}

// TestExamples: in Chromium, a chat with each of the frontend libraries survives a reload in the middle of an answer,
// shows the same in a second tab, and is stopped from there; a script with npm openai goes on after it was killed. In
// the long form the edge is killed under all answers.
func TestExamples(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	pages := servePages(t)
	var base, other, killer string
	if proofs() {
		w := edgesFor(t, pages)
		serveRuns(t, w.nats, "", serveSession)
		front, kill := frontOf(t, w)
		base, other, killer = front, w.edges[1].url(""), kill
	} else {
		// The long answer takes 80 seconds: a busy browser must be in time to stop it.
		p := newProc(t, "dev", "--data", t.TempDir(), "--cors-origin", pages, "--demo-speed", "0.25")
		p.start()
		base, other = p.url(""), p.url("")
	}
	out, err := runNode(t, node, chromium, "examples.mjs", "PAGES="+pages, "BASE="+base, "OTHER="+other, "KILL="+killer,
		"TOKEN="+edgeToken,
		"SCRIPT="+filepath.Join("..", exampleDir, "openai/openai.mjs"))
	if err != nil || strings.Count(out, "\nok ")+1 < 7 {
		t.Errorf("the examples: %v", err)
	}
}

// frontOf is a proxy that signs requests in, as a platform's would, and sends them to the first edge as long as there
// is one. A request to kill kills that edge.
func frontOf(t *testing.T, w world) (front, kill string) {
	t.Helper()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, w.edges[0].addr)
		if err != nil {
			conn, err = d.DialContext(ctx, network, w.edges[1].addr)
		}
		return conn, err
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true},
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "edges"
			r.Out.Header.Set("Authorization", "Bearer "+edgeToken)
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { w.edges[0].kill() })
	srv := httptest.NewServer(mux)
	srv.Config.ErrorLog = proxy.ErrorLog
	t.Cleanup(srv.Close)
	return srv.URL, srv.URL + "/kill"
}
