package natsjs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// TestMissingStream: an append to a stream that is missing is refused at once with its reason, whatever of the run is
// known, with a key and without, also where somebody listens to the log's subjects and keeps the server from saying
// that nobody does. It is stored when the stream is there again.
func TestMissingStream(t *testing.T) {
	for _, listens := range []string{"", "agent.>", ">"} {
		t.Run("listener "+listens, func(t *testing.T) {
			k, l := open(t)
			keys, err := natsjs.OpenKeys(t.Context(), k.Conn)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: keys})
			if listens != "" {
				if _, err := k.Dial(t).SubscribeSync(listens); err != nil {
					t.Fatal(err)
				}
			}
			opt := producers.AppendOptions{Within: time.Hour} // nobody waits so long
			if _, err := a.Append(t.Context(), key, []schema.Event{text("", "a")}, opt); err != nil {
				t.Fatal(err)
			}
			stream := natskit.StreamName(schema.Partition(key.Run, k.Partitions))
			if err := k.JS.DeleteStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			fresh, _ := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: keys}) // that does not know the run's head
			for name, a := range map[string]*producers.Appender{"known": a, "unknown": fresh} {
				for _, opt.IdempotencyKey = range []string{"", "k"} {
					_, err := a.Append(t.Context(), key, []schema.Event{text("", "b")}, opt)
					certain := errors.Is(err, producers.ErrUnavailable) && !errors.Is(err, producers.ErrUnanswered)
					if !errors.Is(err, producers.ErrSetup) || !certain {
						t.Errorf("%s, key %q: %v", name, opt.IdempotencyKey, err)
					}
				}
			}
			if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{Partitions: k.Partitions}); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Append(t.Context(), key, []schema.Event{text("", "c")}, opt); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMaxPayloadLowered: a server that is told to take smaller messages while an edge writes to it refuses what is
// larger with its reason; what is smaller is stored as before, and all of it is once it is told otherwise.
func TestMaxPayloadLowered(t *testing.T) {
	for _, most := range []int32{256 << 10, 32 << 10} { // above and below what is written past the client library
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			nc, reload := reloading(t)
			l, err := natsjs.Open(t.Context(), nc)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := producers.NewAppender(producers.AppenderConfig{Log: l})
			if _, err := a.Append(t.Context(), key, []schema.Event{text("", "a")}, producers.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			reload(most)
			opt := producers.AppendOptions{Within: time.Hour}
			large, small := text("", strings.Repeat("x", int(most)+1)), text("", "y")
			for n := range 3 {
				run := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("large_%d", n)}
				before := nc.Stats().Reconnects
				_, err := a.Append(t.Context(), run, []schema.Event{large}, opt)
				if !errors.Is(err, producers.ErrSetup) {
					t.Fatalf("too large: %v", err)
				}
				if n > 0 && nc.Stats().Reconnects != before {
					t.Error("a message that was too large has cost the connection again")
				}
				if _, err := a.Append(t.Context(), run, []schema.Event{small}, opt); err != nil {
					t.Fatal(err)
				}
				if got := stored(t, l, run); len(got) != 1 {
					t.Errorf("stored %v", got)
				}
			}
			reload(1 << 20)
			if n, err := natskit.LearnPayload(nc); err != nil || n != 1<<20 {
				t.Fatal(n, err)
			}
			for n := 0; ; n++ {
				_, err := a.Append(t.Context(), key, []schema.Event{large}, opt)
				if err == nil {
					break
				}
				if !errors.Is(err, producers.ErrSetup) || n > 500 {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // it connects anew
			}
		})
	}
}

// reloading is a connection to a server with a log, and what tells the server how large a message may be.
func reloading(t *testing.T) (nc *nats.Conn, reload func(most int32)) {
	t.Helper()
	o := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		MaxPayload: 1 << 20}
	s, err := server.NewServer(o.Clone())
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	if nc, err = natskit.Dial(s.ClientURL(), t.Name()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	declare(t, nc)
	return nc, func(most int32) {
		t.Helper()
		now := o.Clone()
		now.MaxPayload = most
		if err := s.ReloadOptions(now); err != nil {
			t.Fatal(err)
		}
	}
}
