package proxy_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/gemini"
	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/openai"
	"agentstream/adapters/openai/openaitest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// recordings are the recorded answers of one API.
type recordings struct {
	folder, path string
	decoder      func(provider.Config) *provider.Decoder
	files        map[string]func(*testing.T, []schema.Event)
	read         func(string) []byte
}

func recorded(t *testing.T) []recordings {
	t.Helper()
	check := func(r *recordings, name string, c func(*testing.T, []schema.Event)) {
		if r.files == nil {
			r.files = map[string]func(*testing.T, []schema.Event){}
		}
		r.files[name] = c
	}
	a := recordings{folder: "anthropic", path: "/v1/messages", decoder: anthropic.NewDecoder}
	wantA, read := anthropictest.Recordings(t)
	a.read = read
	for name, w := range wantA {
		check(&a, name, func(t *testing.T, events []schema.Event) { anthropictest.Check(t, events, w) })
	}
	g := recordings{folder: "gemini", path: "/v1beta/models/gemini-x:streamGenerateContent", decoder: gemini.NewDecoder}
	wantG, read := geminitest.Recordings(t)
	g.read = read
	for name, w := range wantG {
		check(&g, name, func(t *testing.T, events []schema.Event) { geminitest.Compare(t, events, w) })
	}
	c := recordings{folder: "openai-chat", path: "/v1/chat/completions", decoder: openai.NewChatDecoder}
	r := recordings{folder: "openai-responses", path: "/v1/responses", decoder: openai.NewResponsesDecoder}
	wantO, read := openaitest.Recordings(t)
	for name := range wantO {
		o := &r
		if openaitest.Chat(name) {
			o = &c
		}
		o.read = read
		check(o, name, func(t *testing.T, events []schema.Event) { openaitest.Check(t, name, events) })
	}
	return []recordings{a, g, c, r}
}

// TestRecordings sends every recorded stream through the proxy: the client has the file, byte for byte,
// and the log has what is expected of it.
func TestRecordings(t *testing.T) {
	all := recorded(t)
	bodies := map[string][]byte{}
	for _, r := range all {
		for name := range r.files {
			bodies[name] = r.read(name)
		}
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := req.Header.Get("X-Request-Id")
		typ := sse
		if strings.HasSuffix(name, ".jsonl") {
			typ = "application/x-ndjson"
		}
		replay(bodies[name], typ).ServeHTTP(w, req)
	}))
	t.Cleanup(up.Close)
	r := startAt(t, map[string]string{"anthropic": up.URL, "openai": up.URL, "gemini": up.URL},
		func(c *proxy.Config) { c.Requests = proxy.RequestsNone })
	for _, list := range all {
		prefix, _, _ := strings.Cut(list.folder, "-")
		for name, check := range list.files {
			t.Run(name, func(t *testing.T) {
				resp, got := r.post("/"+prefix+list.path, `{}`, "X-Request-Id", name)
				if !bytes.Equal(got, bodies[name]) {
					t.Fatalf("the client has %d bytes that are not the file's %d", len(got), len(bodies[name]))
				}
				events := r.ended(resp.Header.Get(proxy.HeaderRun))
				framed(t, events)
				check(t, told(events))
				d := list.decoder(provider.Config{})
				want, _ := d.Write(bodies[name])
				if w, g := providertest.Print(append(want, d.Close()...)), providertest.Print(told(events)); w != g {
					t.Errorf("the log has\n%.2000s\nwant\n%.2000s", g, w)
				}
			})
		}
	}
	if l := r.losses(); len(l) != 0 {
		t.Errorf("losses %v", l)
	}
}
