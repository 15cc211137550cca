package auth

import (
	"strings"
	"testing"
	"time"
)

// TestStaticTokensAreReplaced: both tokens are accepted while they change, and the one that was taken away no more.
func TestStaticTokensAreReplaced(t *testing.T) {
	now := []string{"old"}
	s, err := NewStaticTokens(func() []string { return now }, Caller{Tenant: "acme", Scopes: ScopeAll})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		tokens   []string
		old, new bool
	}{{[]string{"old"}, true, false}, {[]string{"new", "old"}, true, true}, {[]string{"new"}, false, true}, {nil, false, false}} {
		now = step.tokens
		_, oldErr := s.Caller(t.Context(), "old")
		_, newErr := s.Caller(t.Context(), "new")
		if (oldErr == nil) != step.old || (newErr == nil) != step.new {
			t.Errorf("%q: old %v, new %v", step.tokens, oldErr, newErr)
		}
	}
	if _, err := NewStaticTokens(func() []string { return nil }, Caller{}); err == nil {
		t.Error("no token at all is accepted")
	}
}

// TestShareSecretsAreReplaced: the first secret signs, the one before is accepted until it is taken away.
func TestShareSecretsAreReplaced(t *testing.T) {
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
	now := []string{first}
	s, err := NewShares(SharesConfig{Secret: []byte(first), Secrets: func() []string { return now }, Still: func(Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	issue := func() string {
		t.Helper()
		token, _, err := s.Issue(Caller{Tenant: "acme", Scopes: ScopeRead, Credential: "token"}, "run", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	old := issue()
	now = []string{second, first}
	fresh := issue()
	for _, step := range []struct {
		secrets    []string
		old, fresh bool
	}{{[]string{second, first}, true, true}, {[]string{second}, false, true}, {[]string{"short", second}, false, true}, {[]string{first}, true, false}} {
		now = step.secrets
		_, oldErr := s.Caller(t.Context(), old)
		_, freshErr := s.Caller(t.Context(), fresh)
		if (oldErr == nil) != step.old || (freshErr == nil) != step.fresh {
			t.Errorf("%q: old %v, fresh %v", step.secrets, oldErr, freshErr)
		}
	}
}
