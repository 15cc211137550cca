package natskit_test

import (
	"context"
	"errors"
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

// hosted is an embedded server with a connection, and a log of one partition.
func hosted(t *testing.T, e natskit.Embedded) (*natskit.Host, jetstream.JetStream) {
	t.Helper()
	h, err := natskit.Start(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	nc, err := natskit.Dial("", t.Name(), nats.InProcessServer(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err == nil {
		err = natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return h, js
}

// put stores a message of 64 KiB, or says why not within a second.
func put(t *testing.T, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := js.Publish(ctx, "agent.0.acme.run.-", []byte(strings.Repeat("x", 64<<10)), jetstream.WithRetryAttempts(0))
	return err
}

// TestHostAfterAFullDisk: a server that met the end of its disk stays silent when there is room again, says that it
// is stuck, and goes on below the same connection when it is begun anew, with all that it had acknowledged.
func TestHostAfterAFullDisk(t *testing.T) {
	disk := testkit.SmallDisk(t, 16)
	h, js := hosted(t, natskit.Embedded{StoreDir: filepath.Join(disk, "nats")})
	if err := errors.Join(put(t, js), h.Storing()); err != nil {
		t.Fatal(err)
	}
	free := testkit.Fill(t, disk)
	if err := put(t, js); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := h.Storing(); !errors.Is(err, natskit.ErrStuck) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("on a full disk: %v", err)
	}
	free()
	if err := put(t, js); err == nil {
		t.Error("the server mends itself: there is no need for Restart")
	}
	if err := h.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := h.Storing(); err != nil {
		t.Errorf("begun anew: %v", err)
	}
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if err = put(t, js); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("the connection does not find the new server: %v", err)
	}
	st, err := js.Stream(t.Context(), natskit.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n < 2 {
		t.Errorf("%d messages, at least 2 were acknowledged", n)
	}
}

// TestHostAtItsBound: what may be stored is used up, and no restart would help.
func TestHostAtItsBound(t *testing.T) {
	h, js := hosted(t, natskit.Embedded{StoreDir: t.TempDir(), MaxStore: 256 << 10})
	for range 8 {
		_ = put(t, js) // the last ones are refused
	}
	if err := h.Storing(); !errors.Is(err, schema.ErrFull) || errors.Is(err, natskit.ErrStuck) {
		t.Errorf("at its bound: %v", err)
	}
	if st, err := js.Stream(t.Context(), natskit.StreamName(0)); err != nil || st.Purge(t.Context()) != nil {
		t.Fatal(err)
	}
	if err := h.Storing(); err != nil {
		t.Errorf("with room: %v", err)
	}
}
