package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signers are keys of every kind, made once: RSA takes its time.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	must := func(s crypto.Signer, err error) crypto.Signer {
		if err != nil {
			panic(err)
		}
		return s
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	other, err2 := rsa.GenerateKey(rand.Reader, 2048)
	ec, err3 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec384, err4 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, err5 := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{
		"rsa": must(rsaKey, err), "attacker": must(other, err2), "ec": must(ec, err3), "ec384": must(ec384, err4), "ed": must(ed, err5),
	}
})

// issuer is an OpenID Connect provider in the process.
type issuer struct {
	t       testing.TB
	server  *httptest.Server
	fetches atomic.Int64 // of the key set
	strays  atomic.Int64 // requests for anything else: nothing in a token may cause one

	mu     sync.Mutex
	keys   []string // names of signers in the set
	answer http.HandlerFunc
	name   string // of the issuer in the document; "" is the truth
}

func newIssuer(t testing.TB, keys ...string) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		name := i.name
		if name == "" {
			name = i.server.URL
		}
		// The algorithms that the document offers are not asked.
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["none","HS256"]}`, name, i.server.URL+"/keys")
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.answer != nil {
			i.answer(w, r)
			return
		}
		var set jose.JSONWebKeySet
		for _, name := range i.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: signers()[name].Public(), KeyID: name, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { i.strays.Add(1); http.NotFound(w, r) })
	i.server = httptest.NewServer(mux)
	t.Cleanup(i.server.Close)
	return i
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// claims that are accepted.
func (i *issuer) claims(change ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": i.server.URL, "aud": "agentstream", "sub": "u-1", "tenant": "acme", "scope": "openid agentstream:read write",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Unix(),
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// sign makes a token; header entries go over the honest ones, nil takes one away.
func sign(t testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.Claims, header ...map[string]any) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, claims)
	if kid != "" {
		tok.Header["kid"] = kid
	}
	for _, h := range header {
		maps.Copy(tok.Header, h)
	}
	maps.DeleteFunc(tok.Header, func(_ string, v any) bool { return v == nil })
	text, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// good signs honest claims with the RSA key.
func (i *issuer) good(change ...func(jwt.MapClaims)) string {
	return sign(i.t, jwt.SigningMethodRS256, signers()["rsa"], "rsa", i.claims(change...))
}

// raw makes a token of any header and payload, signed by the RSA key of the issuer.
func raw(t testing.TB, header, payload string) string {
	t.Helper()
	text := b64(header) + "." + b64(payload)
	sig, err := jwt.SigningMethodRS256.Sign(text, signers()["rsa"])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// logBuffer takes log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// accept makes an authenticator for an issuer's tokens.
func (i *issuer) accept(change ...func(*JWTConfig)) *JWT {
	i.t.Helper()
	transport := &http.Transport{}
	i.t.Cleanup(transport.CloseIdleConnections)
	cfg := JWTConfig{Issuer: i.server.URL, Audiences: []string{"agentstream", "second"}, JWKS: i.server.URL + "/keys", Transport: transport}
	for _, f := range change {
		f(&cfg)
	}
	j, err := NewJWT(cfg)
	if err != nil {
		i.t.Fatal(err)
	}
	return j
}

func request(header ...string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/v1/agent/runs/run", nil)
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	return r
}

// clean says that an error tells nothing of a token: no part of it that is long enough to mean it.
func clean(t testing.TB, text, token string) {
	t.Helper()
	for part := range strings.SplitSeq(token, ".") {
		if len(part) >= 12 && strings.Contains(text, part[:12]) {
			t.Errorf("%q is in %q", part[:12], text)
		}
	}
}
