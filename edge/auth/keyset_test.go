package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"agentstream/edge/auth/authtest"
)

// clock is a clock that stands until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// TestUnknownKeysDoNotMakeUsFetch sends many tokens that name keys that do not exist, from many
// clients: one fetch for each Pause, and a key that the issuer has made meanwhile is found.
func TestUnknownKeysDoNotMakeUsFetch(t *testing.T) {
	i, c := authtest.New(t, "rsa"), newClock()
	j := accept(t, i, func(cfg *JWTConfig) { cfg.Now = c.now })
	if err := j.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	flood := func() {
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				for m := range 10 {
					token := authtest.Sign(t, jwt.SigningMethodEdDSA, authtest.Signers()["ed"],
						fmt.Sprintf("kid-%d-%d", n, m), i.Claims())
					if _, err := j.Caller(t.Context(), token); !errors.Is(err, ErrUnauthorized) {
						t.Errorf("%v", err)
					}
				}
			})
		}
		wg.Wait()
	}
	flood()
	if n := i.Fetches.Load(); n != 1 {
		t.Errorf("%d fetches right after the first", n)
	}
	c.move(11 * time.Second)
	flood()
	if n := i.Fetches.Load(); n != 2 {
		t.Errorf("%d fetches, want one more", n)
	}
	i.Set(func() { i.Keys = []string{"ec"} }) // the keys are rotated
	token := authtest.Sign(t, jwt.SigningMethodES256, authtest.Signers()["ec"], "ec", i.Claims())
	if _, err := j.Caller(t.Context(), token); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("within the pause: %v", err)
	}
	c.move(11 * time.Second)
	if _, err := j.Caller(t.Context(), token); err != nil {
		t.Errorf("the new key is not found: %v", err)
	}
	if _, err := j.Caller(t.Context(), i.Good()); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("the withdrawn key still signs: %v", err)
	}
}

// TestAwayIssuer: nobody is called a stranger because the issuer does not answer, keys that are known
// serve on for Stale and not longer, and a client that leaves does not use the attempt up.
func TestAwayIssuer(t *testing.T) {
	i, c := authtest.New(t, "rsa"), newClock()
	i.Set(func() {
		i.Answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret detail", http.StatusBadGateway) }
	})
	j := accept(t, i, func(cfg *JWTConfig) { cfg.Now = c.now })
	token := authtest.Sign(t, jwt.SigningMethodRS256, authtest.Signers()["rsa"], "rsa",
		i.Claims(func(m jwt.MapClaims) { m["exp"] = time.Now().Add(24 * time.Hour).Unix() }))
	for range 3 {
		if _, err := j.Caller(t.Context(), token); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnauthorized) {
			t.Errorf("%v", err)
		}
	}
	if n := i.Fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	if j.Check(t.Context()) == nil {
		t.Error("ready without keys")
	}
	i.Set(func() { i.Answer = nil })
	c.move(11 * time.Second)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = j.Caller(gone, token) // whatever it is told: its leaving must not fail the fetch
	if _, err := j.Caller(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	i.Close()
	c.move(50 * time.Minute)
	if _, err := j.Caller(t.Context(), token); err != nil {
		t.Errorf("known keys within Stale: %v", err)
	}
	c.move(11 * time.Minute)
	if _, err := j.Caller(t.Context(), token); !errors.Is(err, ErrUnavailable) {
		t.Errorf("known keys after Stale: %v", err)
	}
}

// TestRunKeepsKeysFresh: a withdrawn key is gone with the next refresh, without any token asking, and
// the issuer may come up after us.
func TestRunKeepsKeysFresh(t *testing.T) {
	i := authtest.New(t, "rsa")
	i.Set(func() {
		i.Answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yet", http.StatusServiceUnavailable) }
	})
	logs := new(logBuffer)
	j := accept(t, i, func(cfg *JWTConfig) {
		cfg.Discover, cfg.JWKS, cfg.Refresh, cfg.Logger = true, "", 5*time.Millisecond, logs.logger()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
			if time.Now().After(end) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("a failed fetch", func() bool { return i.Fetches.Load() > 0 })
	i.Set(func() { i.Answer = nil })
	until("ready", func() bool { return j.Check(ctx) == nil })
	good := i.Good()
	until("the token is accepted", func() bool { _, err := j.Caller(ctx, good); return err == nil })
	i.Set(func() { i.Keys = []string{"ec"} })
	until("the withdrawn key is gone", func() bool { _, err := j.Caller(ctx, good); return errors.Is(err, ErrUnauthorized) })
	// A document that names another issuer is not believed.
	i.Set(func() { i.Name, i.Keys = "https://evil.example", []string{"rsa"} })
	before := strings.Count(logs.String(), "keys cannot be fetched")
	until("a refused document", func() bool { return strings.Count(logs.String(), "keys cannot be fetched") > before+3 })
	if _, err := j.Caller(ctx, good); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("keys of another issuer: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestKeySetsAreReadWithCare has sets that an issuer, or somebody in between, could send.
func TestKeySetsAreReadWithCare(t *testing.T) {
	key := func(k jose.JSONWebKey) string {
		b, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	public := key(jose.JSONWebKey{Key: authtest.Signers()["rsa"].Public(), KeyID: "rsa"})
	for name, tt := range map[string]struct {
		body string
		keys int
	}{
		"one": {`{"keys":[` + public + `]}`, 1},
		"unknown ones between": {`{"keys":[{"kty":"LATER"},` + public +
			`,{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"},7]}`, 1},
		"private": {`{"keys":[` + key(jose.JSONWebKey{Key: authtest.Signers()["rsa"], KeyID: "rsa"}) + `]}`, 0},
		"symmetric": {`{"keys":[` +
			key(jose.JSONWebKey{Key: []byte(strings.Repeat("s", 32)), KeyID: "rsa"}) + `]}`, 0},
		"for encryption": {`{"keys":[` +
			key(jose.JSONWebKey{Key: authtest.Signers()["rsa"].Public(), KeyID: "rsa", Use: "enc"}) + `]}`, 0},
		"another algorithm": {`{"keys":[` +
			key(jose.JSONWebKey{Key: authtest.Signers()["rsa"].Public(), KeyID: "rsa", Algorithm: "RSA-OAEP"}) + `]}`, 0},
		"weak": {`{"keys":[` + key(jose.JSONWebKey{Key: small.Public(), KeyID: "rsa"}) + `]}`, 0},
		"a point off the curve": {`{"keys":[{"kty":"EC","crv":"P-256","kid":"rsa",` +
			`"x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"}]}`, 0},
		"too many": {`{"keys":[` + strings.TrimSuffix(strings.Repeat(public+",", maxKeys+1), ",") + `]}`, 0},
		"none":     {`{"keys":[]}`, 0},
		"no set":   {`[]`, 0},
		"no JSON":  {`<html>`, 0},
	} {
		keys, err := parseKeys([]byte(tt.body))
		if len(keys) != tt.keys || (err == nil) != (tt.keys > 0) {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
	}
	i := authtest.New(t, "rsa")
	i.Set(func() {
		i.Answer = func(w http.ResponseWriter, _ *http.Request) {
			for range 3 << 10 { // 3 MiB
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<10))); err != nil {
					return
				}
			}
		}
	})
	if err := accept(t, i).Warm(t.Context()); err == nil {
		t.Error("3 MiB of nothing are a key set")
	}
	i.Set(func() {
		i.Answer = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://issuer.example/keys", http.StatusFound)
		}
	})
	if err := accept(t, i).Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "https is needed") {
		t.Errorf("a redirect to an open wire: %v", err)
	}
	hang := make(chan struct{})
	i.Set(func() { i.Answer = func(http.ResponseWriter, *http.Request) { <-hang } })
	if err := accept(t, i, func(c *JWTConfig) { c.Timeout = 50 * time.Millisecond }).Warm(t.Context()); err == nil {
		t.Error("a set that does not come is there")
	}
	close(hang)
}
