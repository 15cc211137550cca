package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/node"
	"agentstream/edge/auth"
	"agentstream/internal/testkit"
)

const hmacSecret = "0123456789abcdef0123456789abcdef"

// Without authentication nobody is served but by dev and by an edge that is told to, on this machine;
// flags that contradict each other are refused before anything starts.
func TestWhoIsServedWithoutAuthentication(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string // in the error; "" is none
	}{
		{[]string{"dev"}, ""},
		{[]string{"dev", "--listen", "localhost:8080"}, ""},
		{[]string{"dev", "--listen", "0.0.0.0:8080"}, "loopback"},
		{[]string{"dev", "--listen", ":8080"}, "loopback"},
		{[]string{"edge"}, "no authentication"},
		{[]string{"edge", "--listen", "127.0.0.1:8080"}, "no authentication"},
		{[]string{"edge", "--insecure-no-auth"}, ""},
		{[]string{"edge", "--insecure-no-auth", "--listen", "[::1]:8080"}, ""},
		{[]string{"edge", "--insecure-no-auth", "--listen", "0.0.0.0:8080"}, "loopback"},
		{[]string{"edge", "--insecure-no-auth", "--listen", "192.0.2.1:8080"}, "loopback"},
		{[]string{"edge", "--insecure-no-auth", "--listen", ":8080"}, "loopback"},
		{[]string{"edge", "--insecure-no-auth", "--auth-token", "t"}, "--insecure-no-auth"},
		{[]string{"edge", "--insecure-no-auth", "--api-keys", "keys"}, "--insecure-no-auth"},
		{[]string{"edge", "--insecure-no-auth", "--hmac-secret", hmacSecret}, "--insecure-no-auth"},
		{[]string{"edge", "--listen", "0.0.0.0:8080", "--auth-token", "t"}, ""},
		{[]string{"edge", "--api-keys", "keys"}, ""},
		{[]string{"edge", "--oidc-issuer", "https://id.example", "--audience", "agentstream"}, ""},
		{[]string{"edge", "--jwks-url", "https://id.example/keys", "--issuer", "https://id.example", "--audience",
			"a,b"}, ""},
		{[]string{"edge", "--hmac-secret", hmacSecret}, ""},
		{[]string{"edge", "--oidc-issuer", "https://id.example"}, "audience"},
		{[]string{"edge", "--oidc-issuer", "http://id.example", "--audience", "a"}, "https"},
		{[]string{"edge", "--jwks-url", "https://id.example/keys", "--audience", "a"}, "issuer"},
		{[]string{"edge", "--oidc-issuer", "https://id.example", "--issuer", "https://other.example", "--audience",
			"a"}, "--issuer"},
		{[]string{"edge", "--hmac-secret", "short"}, "32"},
		{[]string{"edge", "--hmac-secret", hmacSecret, "--oidc-issuer", "https://id.example", "--audience", "a"},
			"2 sources"},
		{[]string{"edge", "--auth-token", "t", "--audience", "a"}, "--audience"},
		{[]string{"edge", "--auth-token", "t", "--ticket-ttl", "1h"}, "--ticket-ttl"},
	} {
		cli, err := parse(t, nil, tt.args...)
		if err != nil {
			t.Fatalf("%v: %v", tt.args, err)
		}
		if tt.args[0] == "edge" {
			err = cli.Edge.check()
		} else {
			err = cli.Dev.Check(true)
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), hmacSecret) {
			t.Errorf("%v: the error holds the secret", tt.args)
		}
	}
}

// The variable counts as the flag does. The open edge answers programs of this machine, and neither a name
// that was pointed here nor a page of another site.
func TestInsecureNoAuth(t *testing.T) {
	server := testkit.NATS(t)
	cli, err := parse(t, map[string]string{"AGENTSTREAM_INSECURE_NO_AUTH": "true"}, "edge", "--tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	if err := cli.Edge.check(); err != nil {
		t.Fatal(err)
	}
	var logs strings.Builder
	g, err := node.NewGate(t.Context(), &cli.Edge.ListenFlags, server.Conn, nil, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logs.String(), "no authentication") {
		t.Errorf("nothing warns: %s", &logs)
	}
	for _, tt := range []struct {
		host, origin string
		in           bool
	}{
		{"127.0.0.1:8080", "", true},
		{"localhost:8080", "", true},
		{"agents.example", "", false},
		{"127.0.0.1:8080", "https://elsewhere.example", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/agent/runs", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		c, err := g.Authenticate(r)
		if tt.in && (err != nil || c.Tenant != "acme" || c.Scopes != auth.ScopeAll) || !tt.in &&
			!errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%+v: %+v %v", tt, c, err)
		}
	}
}

// printed runs fn and returns what it writes to standard output.
func printed(t *testing.T, fn func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = fn()
	os.Stdout = stdout
	w.Close()
	text, rerr := io.ReadAll(r)
	r.Close()
	if err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	return string(text)
}

// What auth new-key and auth token make is let in by a gate with the same flags, over a real bucket
// of tickets.
func TestCredentialsThatAreMadeAreAccepted(t *testing.T) {
	server := testkit.NATS(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("# ours"), 0o600); err != nil { // without its newline
		t.Fatal(err)
	}
	key := strings.TrimSpace(printed(t, makeKey(&NewKeyCmd{Tenant: "acme", Scopes: []string{"read", "write"}, ID: "ci",
		TTL: time.Hour, Append: path})))
	shown := printed(t, makeKey(&NewKeyCmd{Tenant: "acme", Scopes: []string{"command"}, Note: "by hand"}))
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	have, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(have), key) {
		t.Fatalf("%s %v", have, err)
	}
	if err := os.WriteFile(path, append(have, lines[len(lines)-1]...), 0o600); err != nil {
		t.Fatal(err)
	}
	cli, err := parse(t, map[string]string{"AGENTSTREAM_HMAC_SECRET": hmacSecret}, "auth", "token", "--tenant", "zeta",
		"--scopes", "read", "--subject", "me")
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(printed(t, cli.Auth.Token.Run))
	if cli, err = parse(t, nil, "edge", "--api-keys", path, "--auth-token", "all"); err != nil {
		// the secret is in the environment
		t.Fatal(err)
	}
	var logs strings.Builder
	g, err := node.NewGate(ctx, &cli.Edge.ListenFlags, server.Conn, nil, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]auth.Caller{
		key:      {Tenant: "acme", Subject: "key:ci", Scopes: auth.ScopeRead | auth.ScopeWrite},
		lines[1]: {Tenant: "acme", Scopes: auth.ScopeCommand},
		token:    {Tenant: "zeta", Subject: "me", Scopes: auth.ScopeRead},
		"all":    {Tenant: "default", Scopes: auth.ScopeAll},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		c, err := g.Authenticate(r)
		if err != nil || c.Tenant != want.Tenant || c.Scopes != want.Scopes || want.Subject != "" &&
			c.Subject != want.Subject {
			t.Errorf("%+v %v, want %+v", c, err, want)
		}
		if err := g.Still(c); err != nil {
			t.Error(err)
		}
		if strings.Contains(logs.String(), text) && text != "all" {
			t.Error("a credential is in the log")
		}
		if !c.May(auth.ScopeRead) {
			continue
		}
		ticket, _, err := g.Tickets.Issue(ctx, c, "run")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := g.Tickets.Redeem(ctx, ticket, "run"); err != nil || got.Tenant != c.Tenant || got.Run != "run" {
			t.Errorf("%+v %v", got, err)
		}
	}
	if len(g.Checks) != 2 || strings.Contains(logs.String(), hmacSecret) {
		t.Errorf("%d checks; %s", len(g.Checks), &logs)
	}
	for _, bad := range []*NewKeyCmd{
		{Tenant: "a.b", Scopes: []string{"read"}},
		{Tenant: "_audit-acme", Scopes: []string{"read"}},
		{Tenant: "acme", Scopes: []string{"admin"}},
		{Tenant: "acme", Scopes: []string{"read"}, TTL: -1},
		{Tenant: "acme", Scopes: []string{"read"}, ID: "A_B"},
	} {
		if makeKey(bad)() == nil {
			t.Errorf("%+v", bad)
		}
	}
	for _, bad := range []*TokenCmd{
		{HMACSecret: "short", Tenant: "acme", Scopes: []string{"read"}},
		{HMACSecret: hmacSecret, Tenant: "*", Scopes: []string{"read"}},
	} {
		if bad.Run() == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// makeKey returns the command, beside no log.
func makeKey(c *NewKeyCmd) func() error {
	c.NATS = "nats://127.0.0.1:1"
	return func() error { return c.Run(context.Background(), slog.New(slog.DiscardHandler)) }
}
