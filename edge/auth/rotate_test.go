package auth

import (
	"os"
	"path/filepath"
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
	}{{[]string{"old"}, true, false}, {[]string{"new", "old"}, true, true}, {[]string{"new"}, false, true},
		{nil, false, false}} {
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
	s, err := NewShares(SharesConfig{Secret: []byte(first), Secrets: func() []string { return now },
		Still: func(Caller) error { return nil }})
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
	}{{[]string{second, first}, true, true}, {[]string{second}, false, true}, {[]string{"short", second}, false, true},
		{[]string{first}, true, false}} {
		now = step.secrets
		_, oldErr := s.Caller(t.Context(), old)
		_, freshErr := s.Caller(t.Context(), fresh)
		if (oldErr == nil) != step.old || (freshErr == nil) != step.fresh {
			t.Errorf("%q: old %v, fresh %v", step.secrets, oldErr, freshErr)
		}
	}
}

// TestRemoveAPIKeys: the keys of one tenant go, whatever is between them stays, and a node that has the file open lets
// nobody of them in.
func TestRemoveAPIKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	var text strings.Builder
	keys := map[string]string{}
	for _, tenant := range []string{"acme", "other", "acme", "acme_2"} {
		key, record, err := NewAPIKey("", tenant, ScopeRead, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		line, err := record.Line()
		if err != nil {
			t.Fatal(err)
		}
		keys[key] = tenant
		text.WriteString("# of " + tenant + "\n\n" + string(line))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o640); err != nil {
		t.Fatal(err)
	}
	if n, err := RemoveAPIKeys(path, "acme"); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := RemoveAPIKeys(path, "acme"); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	a, err := OpenAPIKeys(APIKeysConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for key, tenant := range keys {
		if _, err := a.Caller(t.Context(), key); (err == nil) != (tenant != "acme") {
			t.Errorf("a key of %s: %v", tenant, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info, err)
	}
}
