package natsjs_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/schema"
)

// serveWith starts a server with a file store that may have been another one's.
func serveWith(t *testing.T, dir string, maxPayload int32) (*server.Server, jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, MaxPayload: maxPayload,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := natskit.Dial(s.ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return s, js
}

// TestLargerThanTheServerTakesNow: messages that were stored when the server took larger ones are handed
// out all the same. The stream is known to be the same one over the restart.
func TestLargerThanTheServerTakesNow(t *testing.T) {
	dir := t.TempDir()
	s, js := serveWith(t, dir, 4<<20)
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	subject := schema.Subject(schema.RunKey{Tenant: "acme", Run: "r"}, "", 1)
	large := bytes.Repeat([]byte("x"), 3<<20)
	for _, body := range [][]byte{[]byte("a"), large, []byte("b")} {
		if _, err := js.Publish(t.Context(), subject, body); err != nil {
			t.Fatal(err)
		}
	}
	q, err := natsjs.New(js, 0, natsjs.Config{Wait: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	at := seek(t, q, persister.Offset{Stream: "AGENT_0"})
	js.Conn().Close()
	s.Shutdown()
	s.WaitForShutdown()
	_, js = serveWith(t, dir, 64<<10)
	if q, err = natsjs.New(js, 0, natsjs.Config{Wait: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if again := seek(t, q, at); again != at {
		t.Fatalf("after the restart %+v, before %+v", again, at)
	}
	got, calls := 0, 0
	for deadline := time.Now().Add(20 * time.Second); got < 3 && time.Now().Before(deadline); calls++ {
		msgs, err := q.Fetch(t.Context(), persister.Limit{Messages: 10, Bytes: 1000})
		if err != nil {
			t.Fatal(err)
		}
		got += len(msgs)
	}
	if got != 3 || calls > 1000 {
		t.Errorf("%d of 3 came, with %d requests", got, calls)
	}
}
