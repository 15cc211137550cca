package main

import (
	"log/slog"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
)

// TestNoSecretsInErrors: an address that cannot be read, or that nobody answers at, is not told with its
// password.
func TestNoSecretsInErrors(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, dsn := range []string{
		"postgres://u:hidden%zz@127.0.0.1:1/x", "postgres://u:hidden@127.0.0.1:port/x",
		"postgres://u:hidden@127.0.0.1:1/x?sslmode=what",
		"host=127.0.0.1 port=what password=hidden", "host=127.0.0.1 password='hidden", "postgres://u:hid den@[::1/x",
		"hidden",
		"host=127.0.0.1 user=u password=hidden port=1 connect_timeout=what",
	} {
		s, err := node.OpenServed(t.Context(), dsn, 0, quiet)
		if err == nil {
			err = s.Ping(t.Context())
			s.Close()
		}
		if err == nil || strings.Contains(err.Error(), "hidden") && dsn != "hidden" {
			t.Errorf("%v", err)
		}
	}
	for _, url := range []string{"nats://u:hidden%zz@127.0.0.1:1", "nats://u:hidden@127.0.0.1:port",
		"nats://u:hidden@127.0.0.1:1", "nats://u:hid den@[::1"} {
		f := cli.NATSFlags{NATS: url}
		nc, err := f.Dial("test", quiet)
		if err == nil {
			nc.Close()
		}
		if err == nil || strings.Contains(err.Error(), "hid") {
			t.Errorf("%v", err)
		}
	}
}
