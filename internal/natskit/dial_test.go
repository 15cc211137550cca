package natskit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
)

// TestDialOutlivesRefusals: a server that refuses the credential for a while, as one does that was started
// with half of its configuration, does not end the connection for good.
func TestDialOutlivesRefusals(t *testing.T) {
	serve := func(port int, password string) *server.Server {
		t.Helper()
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: port, Username: "u", Password: password, NoSigs: true, NoLog: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server does not start")
		}
		return s
	}
	s := serve(-1, "right")
	port := s.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	nc, err := natskit.Dial(s.ClientURL(), "test", nats.UserInfo("u", "right"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s.Shutdown()
	s.WaitForShutdown()
	other := serve(int(port), "wrong")
	for deadline := time.Now().Add(2 * time.Second); !nc.IsClosed() && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond)
	}
	other.Shutdown()
	other.WaitForShutdown()
	serve(int(port), "right")
	for deadline := time.Now().Add(20 * time.Second); !nc.IsConnected(); {
		if nc.IsClosed() || time.Now().After(deadline) {
			t.Fatalf("the connection is %v: %v", nc.Status(), nc.LastError())
		}
		<-time.After(10 * time.Millisecond)
	}
}
