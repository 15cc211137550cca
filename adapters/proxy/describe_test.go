package proxy_test

import (
	"net/http"
	"testing"

	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// TestDescribedByTheFirstCall holds that the call that begins a run says by what it is found, that later calls and
// later proxies say nothing, and that the upstream sees none of it.
func TestDescribedByTheFirstCall(t *testing.T) {
	up := flaky()
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name := range req.Header {
			if len(name) > len("Agentstream") && name[:len("Agentstream")] == "Agentstream" {
				t.Errorf("the upstream has %s", name)
			}
		}
		up.ServeHTTP(w, req)
	}), holding)
	for i, at := range []*rig{r, r, r.another()} {
		end := []string{"", "done", ""}[i]
		headers := []string{proxy.HeaderRun, "named", schema.HeaderTitle, "%D0%9F%D1%83%D1%82%D1%8C", schema.HeaderTags,
			"a,b"}
		if end != "" {
			headers = append(headers, proxy.HeaderEnd, end)
		}
		at.post("/v1/messages", question, headers...)
		r.calls("named", i+1)
	}
	events := r.events("named")
	if n := count(events, schema.TypeSessionUpdated); n != 1 ||
		string(events[1].Payload) != `{"title":"Путь","tags":["a","b"]}` {
		t.Errorf("%d descriptions:\n%s", n, story(events))
	}
	for _, bad := range []string{"100%", "%ff"} {
		resp, body := r.post("/v1/messages", question, proxy.HeaderRun, "bad", schema.HeaderTitle, bad)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("title %q: %d %s", bad, resp.StatusCode, body)
		}
	}
	if len(r.events("bad")) != 0 {
		t.Error("a refused call has begun a run")
	}
}
