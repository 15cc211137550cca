package proxy_test

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"agentstream/adapters/proxy"
)

// TestRunInPath: a path may name the run, before the upstream's name; a header that names another one wins.
func TestRunInPath(t *testing.T) {
	up := &seen{serve: says("hello")}
	one := start(t, up)
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	two := startAt(t, map[string]string{"a": server.URL + "/base", "b": server.URL})
	for _, c := range []struct {
		r          *rig
		path       string
		header     []string
		run, there string // "": a generated one
		status     int
	}{
		{r: one, path: "/run/mine/v1/messages", run: "mine", there: "/v1/messages", status: 200},
		{r: one, path: "//run/./mine//v1/messages", run: "mine", there: "/v1/messages", status: 200},
		{r: one, path: "/run/mine/v1/messages", header: []string{proxy.HeaderRun, "other"}, run: "other",
			there: "/v1/messages", status: 200},
		{r: one, path: "/run/mine/v1/messages", header: []string{proxy.HeaderChild, "kid"}, run: "mine",
			there: "/v1/messages", status: 200},
		{r: one, path: "/v1/run/mine/v1/messages", there: "/v1/run/mine/v1/messages", status: 200},
		{r: two, path: "/run/mine/a/v1/messages", run: "mine", there: "/base/v1/messages", status: 200},
		{r: two, path: "/run/mine/b/v1%2Fx/v1/messages", run: "mine", there: "/v1%2Fx/v1/messages", status: 200},
		{r: one, path: "/run/m.ine/v1/messages", status: 400},
		{r: one, path: "/run/m%20ine/v1/messages", status: 400},
		{r: two, path: "/run/mine/c/v1/messages", status: 404},
		{r: two, path: "/run/mine", status: 404},
	} {
		before := len(up.all())
		resp, body := c.r.post(c.path, `{"messages":[{"role":"user","content":"hi"}]}`, c.header...)
		got := resp.Header.Get(proxy.HeaderRun)
		if resp.StatusCode != c.status || c.run != "" && got != c.run {
			t.Errorf("%s %v: %s, run %q: %s", c.path, c.header, resp.Status, got, body)
			continue
		}
		if c.status != 200 {
			if len(up.all()) != before {
				t.Errorf("%s: the call was made", c.path)
			}
			continue
		}
		if there := up.all()[before].URL.EscapedPath(); there != c.there {
			t.Errorf("%s: the upstream was asked for %s", c.path, there)
		}
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.New(proxy.Config{Upstreams: []proxy.Upstream{{Name: "run", URL: u}}}); err == nil {
		t.Error("an upstream is called run")
	}
}
