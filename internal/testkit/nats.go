package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
)

// Server is an embedded NATS server with one connection to it.
type Server struct {
	Server     *server.Server
	Conn       *nats.Conn
	JS         jetstream.JetStream
	Partitions int
}

// NATS starts a server with a file store in the test's temporary directory, declares a log of four
// partitions, and stops it when the test ends.
func NATS(t testing.TB) *Server {
	t.Helper()
	s, err := natskit.Serve(natskit.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	k := &Server{Server: s, Partitions: 4}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	k.Conn = k.Dial(t)
	if k.JS, err = jetstream.New(k.Conn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := natskit.Declare(ctx, k.JS, natskit.Layout{Partitions: k.Partitions}); err != nil {
		t.Fatal(err)
	}
	return k
}

// Dial opens another connection, closed when the test ends.
func (k *Server) Dial(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := natskit.Dial(k.Server.ClientURL(), t.Name(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
