package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentstream/edge/console"
)

func get(t *testing.T, at string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, at, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	console.Handler(func() (none console.OIDC) { return none }).ServeHTTP(w, r)
	return w.Result()
}

func TestHandler(t *testing.T) {
	for _, c := range []struct {
		path, accept, kind, location string
		status                       int
	}{
		{path: "/", accept: "text/html,*/*", status: 302, location: "/console/"},
		{path: "/", accept: "*/*", status: 404},
		{path: "/console", status: 302, location: "/console/"},
		{path: "/console/", status: 200, kind: "text/html; charset=utf-8"},
		{path: "/console/app.js", status: 200, kind: "text/javascript; charset=utf-8"},
		{path: "/console/lib/index.js", status: 200, kind: "text/javascript; charset=utf-8"},
		{path: "/console/icon.svg", status: 200, kind: "image/svg+xml"},
		{path: "/console/lib", status: 404},
		{path: "/console/..%2fdoc.go", status: 404},
	} {
		res := get(t, c.path, "Accept", c.accept)
		if res.StatusCode != c.status || res.Header.Get("Location") != c.location || c.kind != "" &&
			res.Header.Get("Content-Type") != c.kind {
			t.Errorf("%s: %d %v", c.path, res.StatusCode, res.Header)
		}
		if csp := res.Header.Get("Content-Security-Policy"); c.status == 200 &&
			(!strings.Contains(csp, "trusted-types 'none'") || strings.Contains(csp, "unsafe")) {
			t.Errorf("%s: policy %q", c.path, csp)
		}
	}
	tag := get(t, "/console/app.js").Header.Get("Etag")
	if res := get(t, "/console/app.js", "If-None-Match", tag); res.StatusCode != http.StatusNotModified {
		t.Errorf("with its ETag: %d", res.StatusCode)
	}
}

// TestPacked: who takes gzip gets it, with a tag of its own, and it is the same file.
func TestPacked(t *testing.T) {
	plain, packed := get(t, "/console/app.js"), get(t, "/console/app.js", "Accept-Encoding", "br, gzip")
	zip, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(zip)
	want, _ := io.ReadAll(plain.Body)
	if err != nil || !bytes.Equal(got, want) || packed.Header.Get("Content-Encoding") != "gzip" ||
		packed.Header.Get("Etag") == plain.Header.Get("Etag") || packed.Header.Get("Vary") == "" {
		t.Errorf("%d bytes, want %d: %v, %v", len(got), len(want), packed.Header, err)
	}
	if res := get(t, "/console/app.js", "Accept-Encoding", "gzip", "If-None-Match",
		packed.Header.Get("Etag")); res.StatusCode != http.StatusNotModified {
		t.Errorf("with its ETag: %d", res.StatusCode)
	}
}

// TestBundle: the page needs one script and one sheet of styles, whose names are of their content, so that a browser
// asks for each once. The script is that of the modules: it has what each of them exports, and runs to where it looks
// for its page.
func TestBundle(t *testing.T) {
	html, err := io.ReadAll(get(t, "/console/").Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?:src|href)="([^"#]+\.(?:js|css))"`).FindAllSubmatch(html, -1)
	if len(found) != 2 {
		t.Fatalf("the page asks for %d files: %s", len(found), html)
	}
	for _, m := range found {
		res := get(t, "/console/"+string(m[1]))
		if res.StatusCode != http.StatusOK || !strings.Contains(res.Header.Get("Cache-Control"), "immutable") ||
			!hashed.Match(m[1]) {
			t.Errorf("%s: %d %v", m[1], res.StatusCode, res.Header)
		}
		if path.Ext(string(m[1])) != ".js" {
			continue
		}
		script, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "bundle.mjs")
		if err := os.WriteFile(file, script, 0o600); err != nil {
			t.Fatal(err)
		}
		if out := node(t, "testdata/bundle.mjs", file, "static"); string(out) != "asked for its page\n" {
			t.Errorf("%s", out)
		}
	}
	if res := get(t, "/console/"); res.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("the page itself: %v", res.Header)
	}
}

var hashed = regexp.MustCompile(`-[0-9a-f]{24}\.`)

// TestSignInElsewhere: the page may connect to the issuer's token endpoint where one is configured, and to nobody else.
func TestSignInElsewhere(t *testing.T) {
	ask := func(o console.OIDC, path string) (policy, body string) {
		w := httptest.NewRecorder()
		console.Handler(func() console.OIDC { return o }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Header().Get("Content-Security-Policy"), w.Body.String()
	}
	if policy, body := ask(console.OIDC{Issuer: "https://id.example/realm"},
		"/console/sign-in.json"); !strings.Contains(policy, "connect-src 'self';") || body != "null" {
		t.Errorf("without a client: %s, %s", policy, body)
	}
	o := console.OIDC{Issuer: "https://id.example/realm", ClientID: "console", Scope: "openid"}
	if policy, body := ask(o, "/console/sign-in.json"); !strings.Contains(policy, "connect-src 'self';") ||
		body != "null" {
		t.Errorf("of an issuer that was not reached yet: %s, %s", policy, body)
	}
	o.Authorize, o.Token = "https://login.example/authorize", "https://tokens.example/token"
	want := `{"issuer":"https://id.example/realm","authorization_endpoint":"https://login.example/authorize","token_endpoint":"https://tokens.example/token","client_id":"console","scope":"openid"}`
	if policy, body := ask(o, "/console/sign-in.json"); !strings.Contains(policy,
		"connect-src 'self' https://tokens.example;") || body != want {
		t.Errorf("with one: %s, %s", policy, body)
	}
}

// unsafe is what makes HTML or code from text, and addresses of other hosts that something would be loaded from.
var unsafe = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|import\("?http|from "http|url\(http`)

var imported = regexp.MustCompile(`(?m)^(?:import|export)[^"\n]*from "([^"]+)"|^import "([^"]+)"`)

// TestFiles holds the page's files: nothing that a hostile text could reach, every import there, and small.
func TestFiles(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	root := os.DirFS("static")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if _, err := zip.Write(text); err != nil {
			return err
		}
		if at := unsafe.FindIndex(text); at != nil {
			t.Errorf("%s has %q", name, text[at[0]:at[1]])
		}
		if path.Ext(name) == ".html" && regexp.MustCompile(`<script>|<style|\sstyle=|\son\w+=`).Match(text) {
			t.Errorf("%s has something inline", name)
		}
		if name == "run/recipes.js" {
			text = nil // what it imports is what people copy
		}
		for _, m := range imported.FindAllStringSubmatch(string(text), -1) {
			if _, err := fs.Stat(root, path.Join(path.Dir(name), m[1]+m[2])); err != nil {
				t.Errorf("%s imports %s: %v", name, m[1]+m[2], err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes compressed", packed.Len())
	if packed.Len() > 150_000 {
		t.Errorf("%d bytes compressed: at most 150 KB", packed.Len())
	}
}

// TestClientIsCurrent compiles clients/ts and compares it with what is served: the console uses the client as it is.
func TestClientIsCurrent(t *testing.T) {
	client, err := filepath.Abs("../../clients/ts")
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(client, "node_modules", ".bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("clients/ts is not installed: make js")
	}
	dir := t.TempDir()
	if out, err := exec.Command(tsc, "-p", client, "--outDir", dir, "--declaration", "false", "--sourceMap",
		"false").CombinedOutput(); err != nil {
		// the compiler of the lock file
		t.Fatalf("%v: %s", err, out)
	}
	want, err := filepath.Glob(filepath.Join(dir, "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	have, err := filepath.Glob("static/lib/*.js")
	if err != nil || len(have) != len(want) {
		t.Errorf("%d files, and the compiler writes %d (%v)", len(have), len(want), err)
	}
	for _, file := range want {
		compiled, err := os.ReadFile(file) // in the test's own folder
		if err != nil {
			t.Fatal(err)
		}
		served, err := os.ReadFile(filepath.Join("static/lib", filepath.Base(file)))
		if err != nil || !bytes.Equal(compiled, served) {
			t.Errorf("%s is not what clients/ts compiles to: make console (%v)", filepath.Base(file), err)
		}
	}
}
