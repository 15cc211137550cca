package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// TestVerifyFull connects to a server that speaks TLS: with sslmode=verify-full only one of the right authority, under
// the name that the connection string has, is talked to. An authority that is replaced counts from the next connection
// on.
func TestVerifyFull(t *testing.T) {
	right, wrong := testkit.NewAuthority(t), testkit.NewAuthority(t)
	// Another address than that of other servers, which have the same port.
	ip := fmt.Sprintf("127.%d.%d.%d", 2+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	testkit.StartPostgresTLS(t, right, ip)
	dsn := func(host, ca string) string {
		q := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca}, "connect_timeout": {"10"}}
		return "postgres://postgres@" + host + ":5432/postgres?" + q.Encode()
	}
	ping := func(dsn string) error {
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Ping(t.Context())
	}
	if err := ping(dsn(ip, right.CA)); !errors.Is(err, tables.ErrOlder) { // there are none; it was asked
		t.Errorf("the right authority: %v", err)
	}
	if err := ping(dsn(ip, wrong.CA)); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("another authority: %v", err)
	}
	if err := ping("postgres://postgres@not-of-the-certificate:5432/postgres?sslmode=verify-full&hostaddr=" + ip +
		"&sslrootcert=" + right.CA); err == nil {
		t.Error("a name that is not in the certificate is accepted")
	}
	now := filepath.Join(t.TempDir(), "ca.pem")
	replace := func(ca string) {
		t.Helper()
		text, err := os.ReadFile(ca)
		if err == nil {
			err = os.WriteFile(now, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(wrong.CA)
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn(ip, now)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err == nil || errors.Is(err, tables.ErrOlder) {
		t.Errorf("another authority: %v", err)
	}
	replace(right.CA)
	if err := s.Ping(t.Context()); !errors.Is(err, tables.ErrOlder) {
		t.Errorf("with the authority replaced: %v", err)
	}
}
