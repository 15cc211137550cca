package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

func newShares(t *testing.T, secret string, c *clock, still func(Caller) error) *Shares {
	t.Helper()
	s, err := NewShares(SharesConfig{Secret: []byte(secret), Still: still, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestShares: a share reads one run until it expires, and ends with the credential that made it.
func TestShares(t *testing.T) {
	c, revoked := newClock(), false
	still := func(c Caller) error {
		if revoked || c.Credential != "key:ci" || c.Tenant != "acme" {
			return refuse("revoked")
		}
		return nil
	}
	s := newShares(t, strings.Repeat("s", 32), c, still)
	maker := Caller{Tenant: "acme", Scopes: ScopeAll, Credential: "key:ci"}
	token, until, err := s.Issue(maker, "run_1", time.Hour)
	if err != nil || !s.HasForm(token) {
		t.Fatal(token, err)
	}
	got, err := s.Caller(t.Context(), token)
	if err != nil || got.Tenant != "acme" || got.Run != "run_1" || got.Scopes != ScopeRead || !got.Expires.Equal(until) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, _, err := s.Issue(got, "run_1", time.Hour); !errors.Is(err, ErrForbidden) {
		t.Errorf("a share is passed on: %v", err)
	}
	if _, _, err := s.Issue(Caller{Tenant: "acme", Scopes: ScopeWrite}, "run_1", time.Hour); !errors.Is(err,
		ErrForbidden) {
		t.Errorf("who may not read shares: %v", err)
	}
	for _, ttl := range []time.Duration{0, -1, MaxShareTTL + 1} {
		if _, _, err := s.Issue(maker, "run_1", ttl); err == nil {
			t.Errorf("a share that lives for %v", ttl)
		}
	}
	refused := func(what string, s *Shares, token string) {
		t.Helper()
		if _, err := s.Caller(t.Context(), token); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", what, err)
		}
	}
	body, signature, _ := strings.Cut(strings.TrimPrefix(token, sharePrefix), ".")
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	forged := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(text), "run_1", "run_2", 1)))
	refused("another run", s, sharePrefix+forged+"."+signature)
	refused("no signature", s, sharePrefix+body)
	refused("nothing", s, sharePrefix)
	refused("another secret", newShares(t, strings.Repeat("x", 32), c, still), token)
	revoked = true
	refused("revoked", s, token)
	if err := s.Still(got); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("an open stream of a revoked key: %v", err)
	}
	revoked = false
	c.move(time.Hour)
	refused("expired", s, token)
	if _, err := NewShares(SharesConfig{Secret: []byte("short"), Still: still}); err == nil {
		t.Error("a short secret")
	}
}
