package natsjs_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"agentstream/internal/cputime"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// TestChildrenCostPacks: what many children's spawns and first events ask the log for is one message each, beside a few
// reads for all of them.
func TestChildrenCostPacks(t *testing.T) {
	const children = 2_000
	var spawns, deltas []schema.Event
	for i := range children {
		child := fmt.Sprintf("kid_%d", i)
		spawns = append(spawns, schema.Event{Type: schema.TypeChildSpawn,
			Payload: fmt.Appendf(nil, `{"child_id":%q}`, child)})
		deltas = append(deltas, schema.Event{Type: schema.TypeTextDelta, ChildID: child, Payload: []byte(`{"text":"a"}`)})
	}
	k := testkit.NATS(t)
	for _, way := range []string{"appender", "publisher"} {
		l, err := natsjs.Open(t.Context(), k.Conn)
		if err != nil {
			t.Fatal(err)
		}
		key := schema.RunKey{Tenant: way, Run: "root"}
		app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
		if err != nil {
			t.Fatal(err)
		}
		pub, err := producers.New(producers.Config{Log: l, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		defer pub.Close(t.Context())
		for _, step := range []struct {
			name   string
			events []schema.Event
		}{{"spawns", spawns}, {"first deltas", deltas}, {"second deltas", deltas}} {
			before, cpu := received(t, k), cputime.Process()
			if way == "appender" {
				_, err = app.Append(t.Context(), key, step.events, producers.AppendOptions{})
			} else {
				if err = pub.Send(t.Context(), step.events...); err == nil {
					err = pub.Flush(t.Context())
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			asked := received(t, k) - before
			t.Logf("%s, %s: %d messages to the server, CPU %v", way, step.name, asked, cputime.Process()-cpu)
			if most := int64(children + children/20 + 20); asked > most {
				t.Errorf("%s, %s of %d children: %d messages to the server, want at most %d", way, step.name, children, asked, most)
			}
		}
	}
}

// received returns how many messages the server has had from its clients.
func received(t *testing.T, k *testkit.Server) int64 {
	v, err := k.Server.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v.InMsgs
}

// TestLanesAreThoseOfHeads: the owners that are read of many lanes at once are those that are read one by one, on every
// connection, also right after a pack and where the packs do not fit one answer.
func TestLanesAreThoseOfHeads(t *testing.T) {
	c := testkit.NATSCluster(t)
	var logs []*natsjs.Log
	for range 3 {
		l, err := natsjs.Open(t.Context(), c.Dial(t))
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	key := schema.RunKey{Tenant: "acme", Run: "root"}
	lanes := []string{""}
	for i := range 30 {
		lanes = append(lanes, fmt.Sprintf("kid_%d", i))
	}
	owners := make([]schema.Lane, len(lanes))
	rnd := rand.New(rand.NewPCG(1, 2))
	head := schema.Head{}
	for round := range 44 {
		got, err := logs[round%3].Lanes(t.Context(), key, lanes)
		if err != nil || !slices.Equal(got, owners) {
			t.Fatalf("round %d: %v, %v, want %v", round, got, err, owners)
		}
		i := rnd.IntN(len(lanes))
		if one, err := logs[round%3].Lanes(t.Context(), key, lanes[i:i+1]); err != nil || one[0] != owners[i] {
			t.Fatalf("round %d: lane %q: %v, %v, want %v", round, lanes[i], one, err, owners[i])
		}
		body := []byte("{}\n")
		if round > 34 {
			body = append(make([]byte, 700<<10), '\n')
		}
		owners[i] = schema.Lane{Owner: fmt.Sprint("w", round), Epoch: uint64(round + 1)}
		head = schema.Head{Last: head.Last + 1, LastID: "e", Day: "20260101", Stored: head.Stored, Lane: owners[i]}
		pack := &schema.Pack{Key: key, Child: lanes[i], First: head.Last, Count: 1, Body: body, Head: head, Writer: "w"}
		if head.Stored, err = logs[rnd.IntN(3)].Append(t.Context(), pack, head.Stored); err != nil {
			t.Fatal(err)
		}
	}
}
