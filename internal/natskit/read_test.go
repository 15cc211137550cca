package natskit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

func publish(t *testing.T, k *testkit.Server, key schema.RunKey, n int) {
	t.Helper()
	for i := range n {
		m := nats.NewMsg(schema.Subject(key, "", k.Partitions))
		m.Data = fmt.Appendf(nil, "%s %d", key.Run, i)
		m.Header.Set("Agent-Seq", fmt.Sprint(i+1))
		if _, err := k.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadBatchInsistsOnTheEnd(t *testing.T) {
	k := testkit.NATS(t)
	key := schema.RunKey{Tenant: "t", Run: "r1"}
	publish(t, k, key, 2500)
	stream := natskit.StreamName(schema.Partition(key.Run, k.Partitions))
	req := natskit.BatchRequest{Seq: 1, NextBy: schema.RunFilter(key, k.Partitions), Batch: 1000}
	page, err := natskit.ReadBatch(t.Context(), k.Conn, stream, req, 5*time.Second)
	if err != nil || len(page.Msgs) != 1000 || !page.More {
		t.Fatalf("page of %d, more %v, err %v", len(page.Msgs), page.More, err)
	}
	req.Seq = page.Msgs[999].Seq + 1
	req.Batch = 5000
	page, err = natskit.ReadBatch(t.Context(), k.Conn, stream, req, 5*time.Second)
	if err != nil || len(page.Msgs) != 1500 || page.More {
		t.Fatalf("page of %d, more %v, err %v", len(page.Msgs), page.More, err)
	}
	// A page that the deadline cuts is an error, whatever came before.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := natskit.ReadBatch(ctx, k.Conn, stream, req, 5*time.Second); !errors.Is(err, natskit.ErrCut) {
		t.Fatalf("a cut page gave %v", err)
	}
	req.NextBy = "agent.0.t.nobody.>"
	if page, err = natskit.ReadBatch(t.Context(), k.Conn, stream, req, 5*time.Second); err != nil || len(page.Msgs) != 0 {
		t.Fatalf("no match gave %d messages, err %v", len(page.Msgs), err)
	}
}

// A page that can never come is known at once, not after the silence.
func TestReadBatchEndsWithItsConnection(t *testing.T) {
	k := testkit.NATS(t)
	nc := k.Dial(t)
	// Nobody answers requests to this subject, and the listener keeps the server from saying so.
	mute, err := k.Conn.SubscribeSync("$JS.API.DIRECT.GET.MUTE")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := natskit.ReadBatch(context.Background(), nc, "MUTE", natskit.BatchRequest{Batch: 1}, time.Hour)
		ended <- err
	}()
	if _, err := mute.NextMsg(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, natskit.ErrCut) || !errors.Is(err, nats.ErrConnectionClosed) {
			t.Fatalf("a closed connection gave %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("waits for a connection that is closed")
	}
}

// What one page allocates is its messages, not a queue for all that a connection may ever hold.
func TestReadBatchAllocatesForItsPageOnly(t *testing.T) {
	k := testkit.NATS(t)
	req := natskit.BatchRequest{Seq: 1, NextBy: "agent.0.t.nobody.>", Batch: 200}
	const pages = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pages {
		if _, err := natskit.ReadBatch(t.Context(), k.Conn, natskit.StreamName(0), req, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / pages; per > 128<<10 { // server and client together
		t.Fatalf("%d bytes for an empty page", per)
	}
}

func TestLeaderReads(t *testing.T) {
	k := testkit.NATS(t)
	key := schema.RunKey{Tenant: "t", Run: "r1"}
	stream := natskit.StreamName(schema.Partition(key.Run, k.Partitions))
	filter := schema.RunFilter(key, k.Partitions)
	if _, err := natskit.LastFromLeader(t.Context(), k.Conn, stream, filter); !errors.Is(err, natskit.ErrNoMessage) {
		t.Fatalf("empty stream gave %v", err)
	}
	publish(t, k, key, 3)
	m, err := natskit.LastFromLeader(t.Context(), k.Conn, stream, filter)
	if err != nil || string(m.Data) != "r1 2" || m.Header["Agent-Seq"][0] != "3" {
		t.Fatalf("last is %q %v, err %v", m.Data, m.Header, err)
	}
	m, err = natskit.NextFromLeader(t.Context(), k.Conn, stream, filter, 2)
	if err != nil || string(m.Data) != "r1 1" {
		t.Fatalf("next from 2 is %q, err %v", m.Data, err)
	}
}

func TestDeclareRefusesAnotherPartitionCount(t *testing.T) {
	k := testkit.NATS(t)
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{Partitions: k.Partitions}); err != nil {
		t.Fatalf("declaring the same again: %v", err)
	}
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{Partitions: 8}); err == nil {
		t.Fatal("another number of partitions was accepted")
	}
}

// Nobody takes copies or window away by not naming them.
func TestDeclareKeepsWhatIsNotNamed(t *testing.T) {
	k := testkit.NATS(t)
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{MaxAge: 5 * time.Hour, MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{}); err != nil {
		t.Fatal(err)
	}
	got, err := natskit.ReadLayout(t.Context(), k.JS)
	want := natskit.Layout{Partitions: k.Partitions, Replicas: 1, MaxAge: 5 * time.Hour, MaxBytes: 1 << 30, BlobBytes: -1}
	if err != nil || got != want {
		t.Fatalf("%+v, want %+v, err %v", got, want, err)
	}
}
