package reference

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServed: the documents are served whole, and the page shows every operation of them without a script.
func TestServed(t *testing.T) {
	h, err := Handler("v1.2.3<script>")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (*http.Response, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		body, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Result(), string(body)
	}
	for path, has := range map[string][]string{
		"/openapi.yaml": {"openapi: 3.1.0", "\n  /v1/agent/runs/{run}/stream:\n",
			"\n  /threads/{run}/commands:\n", "\ncomponents:\n"},
		"/asyncapi.yaml":       {"asyncapi: 3.0.0"},
		"/reference/style.css": {"color-scheme"},
		"/reference": {"v1.2.3&lt;script&gt;", "<code>/v1/agent/runs/{run}/pause</code>", "<i>command</i>",
			"curl -N -X POST -H &#34;Authorization: Bearer $TOKEN&#34;", "<code>/metis/sessions/{run}/turns</code>",
			`<details id="QoderSession">`, `<a href="#QoderSession">QoderSession</a>`},
	} {
		resp, body := ask(path)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
		for _, want := range has {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
		if path == "/reference" && (strings.Contains(body, "<script") || strings.Contains(body, " style=") ||
			strings.Contains(body, "http://") || strings.Contains(body, "https://")) {
			t.Error("the page has a script, a style of its own, or what is loaded from elsewhere")
		}
	}
	if resp, _ := ask("/reference/x"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another path: %d", resp.StatusCode)
	}
}

// TestRefuses: a document whose operations belong nowhere is refused, and not shown in part.
func TestRefuses(t *testing.T) {
	for _, text := range []string{"[", "paths: {/x: {get: {summary: y}}}", "paths: {/x: {get: {tags: [z]}}}",
		"paths: {/x: {get: 1}}"} {
		if _, err := read([]byte(text)); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}
