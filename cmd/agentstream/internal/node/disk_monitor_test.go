package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// TestRoom has the embedded server meet the end of the disk, which writers in dev are kept from: the room says so, and
// when there is room again the server is begun anew and takes publishes of the same connection.
func TestRoom(t *testing.T) {
	disk := testkit.SmallDisk(t, 16)
	host, err := natskit.Start(natskit.Embedded{StoreDir: filepath.Join(disk, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Stop()
	nc, err := natskit.Dial("", t.Name(), nats.InProcessServer(host))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	publish := func() error {
		once, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(once, "agent.0.acme.run.-", []byte(strings.Repeat("x", 4<<10)), jetstream.WithRetryAttempts(0))
		return err
	}
	within := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !cond(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s", what)
			}
		}
	}
	r := &DiskMonitor{Dir: disk, Host: host, Log: slog.New(slog.DiscardHandler)}
	if err := errors.Join(r.err(), publish()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		free := testkit.Fill(t, disk)
		within("the disk is full", func() bool { return errors.Is(r.err(), schema.ErrFull) })
		if err := publish(); err == nil {
			t.Error("a message was stored on a full disk")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		if err := r.err(); !errors.Is(err, schema.ErrFull) || !strings.Contains(err.Error(), "MiB") {
			t.Errorf("on a full disk: %v", err)
		}
		free()
		within("room again", func() bool { return r.err() == nil })
		within("a publish", func() bool { return publish() == nil })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
