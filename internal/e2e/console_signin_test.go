package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"agentstream/edge/auth/authtest"
)

// signingIssuer is an OpenID Connect issuer at which everybody is u-1 of acme: authorization code with PKCE, and keys.
func signingIssuer(t *testing.T) string {
	t.Helper()
	keys := authtest.New(t, "rsa")
	var mu sync.Mutex
	challenges := map[string]string{} // by code
	mux, tokens := http.NewServeMux(), http.NewServeMux()
	// as of providers whose tokens come from another host
	srv, elsewhere := httptest.NewServer(mux), httptest.NewServer(tokens)
	t.Cleanup(srv.Close)
	t.Cleanup(elsewhere.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": srv.URL, "jwks_uri": keys.URL + "/keys",
			"authorization_endpoint": srv.URL + "/authorize", "token_endpoint": elsewhere.URL + "/token"})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		back := url.Values{"state": {q.Get("state")}}
		if q.Get("client_id") == "console" && q.Get("code_challenge_method") == "S256" && q.Get("response_type") == "code" {
			mu.Lock()
			challenges["the-code"] = q.Get("code_challenge")
			mu.Unlock()
			back.Set("code", "the-code")
		} else {
			back.Set("error", "invalid_request")
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	tokens.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		mu.Lock()
		want := challenges[r.FormValue("code")]
		delete(challenges, r.FormValue("code"))
		mu.Unlock()
		if want == "" || base64.RawURLEncoding.EncodeToString(sum[:]) != want {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant"})
			return
		}
		claims := keys.Claims(func(c jwt.MapClaims) { c["iss"] = srv.URL })
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": authtest.Sign(t, jwt.SigningMethodRS256,
			authtest.Signers()["rsa"], "rsa", claims)})
	})
	return srv.URL
}

// TestConsoleSignsInElsewhere: in Chromium, a person signs in at an OpenID Connect issuer and comes back to where they
// were going; what was not asked for here signs nobody in.
func TestConsoleSignsInElsewhere(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--no-demo", "--oidc-issuer", signingIssuer(t), "--audience",
		"agentstream", "--oidc-client-id", "console")
	p.start()
	out, err := runNode(t, node, chromium, "signin.mjs", "BASE="+p.url(""))
	if err != nil || strings.Count(out, "ok ") != 2 {
		t.Errorf("signing in: %v", err)
	}
}

// TestServedDescription: what a server says of its routes is a valid OpenAPI document.
func TestServedDescription(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--no-demo")
	p.start()
	if out, err := runNode(t, node, chromium, "contracts.mjs", "BASE="+p.url("")); err != nil ||
		!strings.HasPrefix(out, "ok ") {
		t.Errorf("openapi.yaml: %v", err)
	}
}
