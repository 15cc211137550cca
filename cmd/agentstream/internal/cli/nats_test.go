package cli_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// TestNATSOverTLS connects to a server that asks for a certificate: with one of its authority, and to a server of the
// authority that --nats-ca names. Anything else is no server that is away: there is nothing to wait for.
func TestNATSOverTLS(t *testing.T) {
	ca, other, dir, own := testkit.NewAuthority(t), testkit.NewAuthority(t), t.TempDir(), t.TempDir()
	ca.Issue(t, dir, "127.0.0.1")
	cert, key := ca.Issue(t, own, "edge")
	secured := ca.Config(t, dir)
	secured.ClientCAs, secured.ClientAuth = ca.Pool, 4 // tls.RequireAndVerifyClientCert
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, TLS: true, TLSConfig: secured,
		TLSTimeout: 5, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	at := "tls://" + s.Addr().String()
	log := slog.New(slog.DiscardHandler)
	good := cli.NATSFlags{NATS: at, NATSCA: ca.CA, NATSCert: cert, NATSKey: key}
	nc, err := good.Dial("test", log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.TLSConnectionState(); err != nil {
		t.Error("the connection is not over TLS")
	}
	nc.Close()
	for name, f := range map[string]cli.NATSFlags{
		"another authority": {NATS: at, NATSCA: other.CA, NATSCert: cert, NATSKey: key},
		"no authority":      {NATS: at, NATSCert: cert, NATSKey: key},
		"half of a pair":    {NATS: at, NATSCA: ca.CA, NATSCert: cert},
		"no such file":      {NATS: at, NATSCA: ca.CA + ".none"},
	} {
		nc, err := f.Dial("test", log)
		if err == nil {
			nc.Close()
			t.Errorf("%s: connected", name)
		}
		if errors.Is(err, natskit.ErrUnreachable) {
			t.Errorf("%s: %v is taken for a server that is away", name, err)
		}
	}
	away := cli.NATSFlags{NATS: "nats://" + testkit.FreeAddr(t)}
	if _, err := away.Dial("test", log); !errors.Is(err, natskit.ErrUnreachable) {
		t.Errorf("nobody is there: %v", err)
	}
}
