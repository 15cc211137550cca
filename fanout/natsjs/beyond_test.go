package natsjs_test

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/fanout/fanouttest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// What was asked for is gone and much follows: that is found out at once, not by asking the leader for
// each message that follows.
func TestNothingIsReadBeyond(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	fanouttest.Store(t, b, schematest.Packs(fanouttest.Key, schematest.Generate(800, 1), 1), 0)
	nc, err := nats.Connect(k.Server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	partitions, err := natskit.Partitions(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), natskit.StreamName(schema.Partition(fanouttest.Key.Run, partitions)))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(100)); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	if _, err := nc.Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for p, err := range l.Packs(t.Context(), fanouttest.Key, 0, 1) {
		t.Fatalf("given %d to %d, %v", p.First, p.Last(), err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n > 2 {
		t.Fatalf("the leader was asked %d times", n)
	}
}
