package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const (
	jsDir     = "js"
	tsClient  = "../../clients/ts"
	nodeHints = "install Node (18 or newer) and Chromium (Debian: apt-get install nodejs npm chromium), then: make js"
)

// missing ends a test for want of something: CI must have it, a person may not.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s; %s", what, nodeHints)
	}
	t.Skipf("NOT TESTED: %s; %s", what, nodeHints)
}

// program finds one of several names in PATH.
func program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "there is no "+names[0]+" in PATH")
	return ""
}

// buildClient compiles clients/ts once per test process: what is tested is what the sources say.
var buildClient = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("node", filepath.Join(tsClient, "node_modules/typescript/bin/tsc"), "-p",
		filepath.Join(tsClient, "src/react")).CombinedOutput()
})

// needNode makes sure that the scripts of js can run, and returns Node and Chromium.
func needNode(t testing.TB) (node, chromium string) {
	t.Helper()
	node, chromium = program(t, "node"), program(t, "chromium", "chromium-browser", "google-chrome")
	for _, dir := range []string{jsDir, tsClient} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
			missing(t, "the packages of "+dir+" are not installed")
		}
	}
	if out, err := buildClient(); err != nil {
		t.Fatalf("clients/ts: %v; after a change of its packages: make js\n%s", err, out)
	}
	return node, chromium
}

// servePage serves an empty page and the compiled client, for a browser.
func servePage(t testing.TB) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/dist/", http.FileServer(http.Dir(tsClient)))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<!doctype html><title>watch</title>"))
	})
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}
