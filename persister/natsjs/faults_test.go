package natsjs_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
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
// out all the same.
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
	js.Conn().Close()
	s.Shutdown()
	s.WaitForShutdown()
	_, js = serveWith(t, dir, 64<<10)
	q, err := natsjs.New(js, 0, natsjs.Config{Wait: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
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

// TestAllHandedOut: when nothing more may be handed out, a fetch waits and does not ask again and again.
func TestAllHandedOut(t *testing.T) {
	dir := t.TempDir()
	_, js := serveWith(t, dir, 1<<20)
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	subject := schema.Subject(schema.RunKey{Tenant: "acme", Run: "r"}, "", 1)
	for range 10 {
		if _, err := js.Publish(t.Context(), subject, []byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	q, err := natsjs.New(js, 0, natsjs.Config{Wait: 300 * time.Millisecond, MaxAckPending: 4})
	if err != nil {
		t.Fatal(err)
	}
	first, err := q.Fetch(t.Context(), wide)
	if err != nil || len(first) != 4 {
		t.Fatalf("%d messages, %v", len(first), err)
	}
	calls := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); calls++ {
		if msgs, err := q.Fetch(context.Background(), wide); err != nil || len(msgs) > 0 {
			t.Fatalf("%d messages, %v", len(msgs), err)
		}
	}
	if calls > 100 {
		t.Errorf("asked %d times in 2 s", calls)
	}
	if err := q.Ack(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got := positions(fetch(t, q, wide)); got != "5 6 7 8" {
		t.Errorf("then came %q", got)
	}
}

// TestGoneUnderOurFeet: what happens to the log while messages are with the store costs neither what is
// stored afterwards nor more than the time of a call.
func TestGoneUnderOurFeet(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, s *testkit.Server){
		"purged": func(t *testing.T, s *testkit.Server) {
			stream, err := s.JS.Stream(t.Context(), "AGENT_0")
			if err == nil {
				err = stream.Purge(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"consumer deleted": func(t *testing.T, s *testkit.Server) {
			if err := s.JS.DeleteConsumer(t.Context(), "AGENT_0", "persist"); err != nil {
				t.Fatal(err)
			}
		},
		"stream made anew": func(t *testing.T, s *testkit.Server) {
			if err := s.JS.DeleteStream(t.Context(), "AGENT_0"); err != nil {
				t.Fatal(err)
			}
			declare(t, s, s.Partitions)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.NATS(t)
			q := open(t, s, natsjs.Config{Wait: 300 * time.Millisecond})
			fill(t, s, 9)
			msgs := fetch(t, q, wide)
			if len(msgs) != 9 {
				t.Fatalf("%d messages", len(msgs))
			}
			happens(t, s)
			for what, settle := range map[string]func(context.Context, []persister.Message) error{
				"ack": q.Ack, "release": q.Release, "hold": q.Hold,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				begin := time.Now()
				err := settle(ctx, msgs[:3])
				cancel()
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("%s took %v: %v", what, took, err)
				} else {
					t.Logf("%s: %v after %v", what, err, took)
				}
			}
			fill(t, s, 4)
			got := map[string]bool{}
			last := ""
			for deadline := time.Now().Add(30 * time.Second); len(got) < 4 && time.Now().Before(deadline); {
				again, err := q.Fetch(t.Context(), wide)
				if err != nil {
					last = err.Error()
				}
				for _, m := range again {
					if m.Stored.After(msgs[8].Stored) {
						got[m.Token[len("$JS.ACK."):]] = true
					}
				}
				if err := q.Ack(t.Context(), again); err != nil {
					t.Errorf("then: %v", err)
				}
			}
			if lag := lagOf(t, q); len(got) != 4 || lag.Messages > 9 {
				t.Errorf("%d of 4 came, lag %+v; %s", len(got), lag, last)
			}
		})
	}
}
