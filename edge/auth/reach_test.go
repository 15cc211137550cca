package auth

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// local are addresses of this machine and of its link, as a document may write them.
var local = []string{
	"https://127.0.0.1:6379/x", "https://127.8.8.8", "http://127.0.0.1:8081/debug/pprof/profile", "https://localhost",
	"http://localhost:9000", "https://LOCALHOST.",
	"https://a.localhost", "https://[::1]:1", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]",
	"https://0.0.0.0:22", "https://[::]",
	"https://[::ffff:0.0.0.0]", "https://169.254.169.254/latest/meta-data", "https://[::ffff:169.254.169.254]",
	"https://[fe80::1]", "https://[fe80::1%25eth0]",
}

// TestReach: an issuer elsewhere leads nowhere on this machine; one on this machine may.
func TestReach(t *testing.T) {
	far, near := newReach("https://id.example:8443/realm"), newReach("http://127.0.0.1:8080")
	for _, at := range local {
		if err := far.check(at); err == nil {
			t.Errorf("an issuer elsewhere leads to %s", at)
		}
		if err := near.check(at); err != nil && !strings.Contains(err.Error(), "https is needed") {
			t.Errorf("an issuer on this machine: %s: %v", at, err)
		}
	}
	for _, at := range []string{"https://keys.example/set", "https://id.example/keys", "https://10.1.2.3/keys",
		"https://notlocalhost/", "https://localhost.example", "https://128.0.0.1"} {
		for _, r := range []reach{far, near} {
			if err := r.check(at); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	for _, at := range []string{"http://id.example/keys", "https://u:p@id.example/", "//id.example",
		"file:///etc/passwd", "https://", "gopher://id.example"} {
		if far.check(at) == nil || near.check(at) == nil {
			t.Errorf("%s is safe", at)
		}
	}
}

// document answers as an issuer elsewhere, and counts what it is asked besides.
type document struct {
	keys, token, redirect string
	others                []string
}

func (d *document) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch {
	case r.URL.Host == "id.example" && strings.HasSuffix(r.URL.Path, "/openid-configuration") && d.redirect == "":
		fmt.Fprintf(w, `{"issuer":"https://id.example","jwks_uri":%q,"authorization_endpoint":"https://id.example/a","token_endpoint":%q}`, d.keys, d.token)
	case r.URL.Host == "id.example" && d.redirect != "":
		http.Redirect(w, r, d.redirect, http.StatusFound)
	case r.URL.Host == "id.example":
		_, _ = io.WriteString(w, `{"keys":[]}`)
	default:
		d.others = append(d.others, r.URL.String())
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

// TestDocumentLeadsNowhereHere: neither a document's fields nor a redirect make this process ask what listens here, nor
// send browsers there.
func TestDocumentLeadsNowhereHere(t *testing.T) {
	for _, at := range local {
		for name, d := range map[string]*document{
			"jwks_uri": {keys: at, token: "https://id.example/t"}, "redirect": {redirect: at},
			"token_endpoint": {keys: "https://id.example/k", token: at},
		} {
			j, err := NewJWT(JWTConfig{Issuer: "https://id.example", Audiences: []string{"a"}, Discover: true, Transport: d})
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Warm(t.Context()); err == nil || len(d.others) > 0 {
				t.Errorf("%s %s: %v, asked %v", name, at, err, d.others)
			}
			if _, in, err := j.keys.discover(t.Context()); err == nil && in.Token == at {
				t.Errorf("%s: browsers are sent to %s", name, at)
			}
		}
	}
}

// TestNamesThatMeanThisMachine: what is dialled counts, whatever its name is.
func TestNamesThatMeanThisMachine(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	for _, tt := range []struct {
		issuer  string
		reaches bool
	}{{"https://id.example", false}, {"http://127.0.0.1:1", true}, {"http://localhost", true}} {
		c := &http.Client{Transport: newReach(tt.issuer).transport()}
		resp, err := c.Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		c.CloseIdleConnections()
		if (err == nil) != tt.reaches || !tt.reaches && !errors.Is(err, errLocal) {
			t.Errorf("%s: %v", tt.issuer, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
