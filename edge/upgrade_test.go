package edge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
)

// TestRefusedUpgrades: what is wrong with an upgrade is answered, and logged, as that, on streams and conversations.
func TestRefusedUpgrades(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	h.Must("run", "run.lifecycle", `{"state":"running"}`)
	good := func() http.Header {
		return http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	}
	for _, path := range []string{"/sample/run/feed", "/talk/lobby"} {
		for name, tt := range map[string]struct {
			header, value string
			status        int
		}{
			"version": {"Sec-Websocket-Version", "12", 426},
			"key":     {"Sec-Websocket-Key", "x", 400},
			"no key":  {"Sec-Websocket-Key", "", 400},
		} {
			r := h.Request("GET", path, "")
			r.Header = good()
			r.Header.Set(tt.header, tt.value)
			resp, err := h.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.status {
				t.Errorf("%s of %s: %d, want %d", name, path, resp.StatusCode, tt.status)
			}
		}
		w := httptest.NewRecorder() // a server whose connections cannot be taken over
		r := httptest.NewRequest("GET", path, nil)
		r.Header = good()
		h.Server.Handler().ServeHTTP(w, r)
		if w.Code != 500 || !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("%s without a connection: %d %s", path, w.Code, w.Body)
		}
	}
	if logs := h.Logs.String(); strings.Contains(logs, `"status":499`) {
		t.Error(logs)
	}
}
