package authtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// Signers are keys of every kind, made once: RSA takes its time. "attacker" is RSA, too, and of
// nobody's set.
var Signers = sync.OnceValue(func() map[string]crypto.Signer {
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
		"rsa": must(rsaKey, err), "attacker": must(other, err2), "ec": must(ec, err3), "ec384": must(ec384, err4),
		"ed": must(ed, err5),
	}
})

// Issuer is an OpenID Connect provider in the process. Its fields may be changed within Set.
type Issuer struct {
	URL     string           // of the issuer; its key set is at /keys
	Fetches atomic.Int64     // of the key set
	Strays  atomic.Int64     // requests for anything else: nothing in a token may cause one
	Keys    []string         // names of signers in the set
	Answer  http.HandlerFunc // of the key set; nil: the keys
	Name    string           // of the issuer in the document; "" is the truth

	t      testing.TB
	server *httptest.Server
	mu     sync.Mutex
}

// New starts an issuer whose set has the named keys. It stops when the test ends.
func New(t testing.TB, keys ...string) *Issuer {
	t.Helper()
	i := &Issuer{t: t, Keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		name := i.Name
		if name == "" {
			name = i.URL
		}
		// The algorithms that the document offers are not asked.
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["none","HS256"]}`, name,
			i.URL+"/keys")
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		i.Fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.Answer != nil {
			i.Answer(w, r)
			return
		}
		var set jose.JSONWebKeySet
		for _, name := range i.Keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: Signers()[name].Public(), KeyID: name, Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { i.Strays.Add(1); http.NotFound(w, r) })
	i.server = httptest.NewServer(mux)
	i.URL = i.server.URL
	t.Cleanup(i.server.Close)
	return i
}

// Close stops the issuer before the test ends.
func (i *Issuer) Close() { i.server.Close() }

// Set changes the issuer.
func (i *Issuer) Set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// Claims returns the claims of tenant acme with the scopes read and write, for the audience agentstream.
func (i *Issuer) Claims(change ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": i.URL, "aud": "agentstream", "sub": "u-1", "tenant": "acme", "scope": "openid agentstream:read write",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Unix(),
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// Sign makes a token; header entries go over the honest ones, nil takes one away.
func Sign(t testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.Claims,
	header ...map[string]any) string {
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

// Good signs honest claims with the RSA key.
func (i *Issuer) Good(change ...func(jwt.MapClaims)) string {
	return Sign(i.t, jwt.SigningMethodRS256, Signers()["rsa"], "rsa", i.Claims(change...))
}

// raw makes a token of any header and payload, signed by the RSA key of the issuer.
func raw(t testing.TB, header, payload string) string {
	t.Helper()
	text := b64(header) + "." + b64(payload)
	sig, err := jwt.SigningMethodRS256.Sign(text, Signers()["rsa"])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
