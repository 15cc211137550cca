package natsjs_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a log whose live side runs until the test ends.
func open(t *testing.T, k *testkit.Server) (*natsjs.Log, fanouttest.Backend) {
	t.Helper()
	return openOn(t, k.Dial(t))
}

func openOn(t *testing.T, nc *nats.Conn) (*natsjs.Log, fanouttest.Backend) {
	t.Helper()
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pubjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return l, fanouttest.Backend{Append: w.Append, Adopt: w.Adopt, History: l, Tail: l}
}

func TestConformance(t *testing.T) {
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		_, b := open(t, testkit.NATS(t))
		return b
	})
}

// TestWatchesOfARun: each is called once for a copy, and the last that ends takes the interest with it.
func TestWatchesOfARun(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	var calls [3]atomic.Int64
	var stops [3]func()
	for i := range calls {
		stop, err := l.Watch(t.Context(), fanouttest.Key, func(schema.Pack) { calls[i].Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		stops[i] = stop
	}
	packs := schematest.Packs(fanouttest.Key, schematest.Generate(4, 1), 1)
	last := uint64(0)
	for n, i := range []int{1, 0, 2} {
		last = fanouttest.Store(t, b, packs[n:n+1], last)
		fanouttest.Eventually(t, func() bool { return calls[i].Load() == int64(n+1) })
		stops[i]()
		stops[i]()
	}
	fanouttest.Store(t, b, packs[3:], last)
	if got := [3]int64{calls[0].Load(), calls[1].Load(), calls[2].Load()}; got != [3]int64{2, 1, 3} {
		t.Errorf("watches were called %v times", got)
	}
	fanouttest.Eventually(t, func() bool {
		subs, err := k.Server.Subsz(&server.SubszOptions{Subscriptions: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(subs.Subs,
			func(s server.SubDetail) bool { return strings.HasPrefix(s.Subject, schema.LivePrefix) })
	})
}

// TestConformanceByTheLibrary: what is not taken off the wire, as on a connection with TLS, comes by the client
// library.
func TestConformanceByTheLibrary(t *testing.T) {
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		nc, err := nats.Connect(testkit.NATS(t).Server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		_, b := openOn(t, nc)
		return b
	})
}

// An id that the log says to be a child's has no packs, and a head that names the root; of a run that goes on behind
// such a message all packs are read.
func TestWordOfAChild(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	ack, err := k.JS.Publish(t.Context(), schema.ChildSubject(fanouttest.Key, "root", k.Partitions), nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (n schema.Seq) {
		t.Helper()
		for p, err := range l.Packs(t.Context(), fanouttest.Key, 0, schema.MaxSeq) {
			if err != nil || p.First != n+1 {
				t.Fatalf("%d behind %d, %v", p.First, n, err)
			}
			n = p.Last()
		}
		return n
	}
	if head, err := l.Head(t.Context(), fanouttest.Key, ""); err != nil || head.HasEvents() || head.Root != "root" ||
		head.Stored != ack.Sequence || read() != 0 {
		t.Errorf("%+v, %v", head, err)
	}
	packs := schematest.Packs(fanouttest.Key, schematest.Generate(600, 1), 1)
	fanouttest.Store(t, b, packs, ack.Sequence)
	if head, err := l.Head(t.Context(), fanouttest.Key, ""); err != nil || head.Root != "" || head.Last != read() ||
		head.Last != packs[len(packs)-1].Last() {
		t.Errorf("%+v, %v", head, err)
	}
}

// TestHoldsAreNoPacks: readers pass over a record that holds a run for one writer. They find every place beside it,
// also where it is the newest of the run or ends a page; the head is that of the newest pack, and watchers get packs
// alone.
func TestHoldsAreNoPacks(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	var got atomic.Int64
	stop, err := l.Watch(t.Context(), fanouttest.Key, func(p schema.Pack) {
		if p.Count == 0 || p.Head.Root != "" {
			t.Errorf("watched: %+v", p)
		}
		got.Add(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	packs := schematest.Packs(fanouttest.Key, schematest.Generate(700, 1), 1)
	after, subject := uint64(0), schema.HoldSubject(fanouttest.Key, k.Partitions)
	for i := range packs {
		stored := fanouttest.Store(t, b, packs[i:i+1], after)
		if after = stored; i%9 > 0 && i < len(packs)-3 {
			continue
		}
		hold := nats.NewMsg(subject)
		hold.Header.Set(schema.HeaderHold, fmt.Sprint(stored, " somebody"))
		ack, err := k.JS.PublishMsg(t.Context(), hold)
		if err != nil {
			t.Fatal(err)
		}
		after = ack.Sequence
	}
	last := packs[len(packs)-1].Head
	if head, err := l.Head(t.Context(), fanouttest.Key, ""); err != nil || head.Last != last.Last ||
		head.LastID != last.LastID || head.Root != "" {
		t.Errorf("%+v, %v", head, err)
	}
	for cursor := schema.Seq(0); cursor < last.Last; cursor += 37 {
		pos := cursor
		for p, err := range l.Packs(t.Context(), fanouttest.Key, cursor, schema.MaxSeq) {
			if err != nil || p.First > pos+1 {
				t.Fatalf("%d after %d: %v", p.First, pos, err)
			}
			pos = p.Last()
		}
		if pos != last.Last {
			t.Fatalf("walk after %d ended at %d of %d", cursor, pos, last.Last)
		}
	}
	for i := 0; got.Load() < int64(len(packs)) && i < 1000; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if got.Load() != int64(len(packs)) {
		t.Errorf("%d of %d packs are watched", got.Load(), len(packs))
	}
}

// A long run among others: every place is found, and finding it does not read what lies before.
func TestSeekInALongRun(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	packs := schematest.Packs(fanouttest.Key, schematest.Generate(6000, 1), 2)
	after, others := uint64(0), make(map[string]uint64)
	for i := range packs {
		after = fanouttest.Store(t, b, packs[i:i+1], after)
		if i%3 == 0 {
			key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("other_%d", i%50)}
			p := schematest.Packs(key, schematest.ByName("plain"), 1)[:1]
			others[key.Run] = fanouttest.Store(t, b, p, others[key.Run])
		}
	}
	end := packs[len(packs)-1].Last()
	for cursor := schema.Seq(0); cursor < end; cursor += 97 {
		pos := cursor
		for p, err := range l.Packs(t.Context(), fanouttest.Key, cursor, min(cursor+10, end)) {
			if err != nil {
				t.Fatal(err)
			}
			if p.First > pos+1 {
				t.Fatalf("behind %d came %d", pos, p.First)
			}
			pos = p.Last()
		}
		if pos < min(cursor+10, end) {
			t.Fatalf("walk behind %d ended at %d", cursor, pos)
		}
	}
}

// Consumers do not grow with what is watched, and lost copies are found by the audit: the copies'
// subscription is cut behind the hub's back.
func TestNoConsumersAndTheAudit(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	deaf := deafTail{Log: l}
	gaps := 0
	h := fanouttest.OpenHub(t, fanout.Config{Stream: l, Tail: deaf, AuditEvery: 50 * time.Millisecond,
		Hooks: fanout.Hooks{Gap: func(schema.RunKey) { gaps++ }}})
	packs := schematest.Packs(fanouttest.Key, schematest.ByName("tool"), 2)
	last := fanouttest.Store(t, b, packs[:1], 0)
	done := make(chan error, 1)
	var got [][]byte
	go func() {
		var err error
		got, err = fanouttest.Read(t.Context(), h, fanouttest.Key, 0, packs[len(packs)-1].Last(), nil)
		done <- err
	}()
	fanouttest.Store(t, b, packs[1:], last)
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the audit never found what no copy told of")
	}
	if all := bytes.Join(schematestBodies(packs), nil); !bytes.Equal(append(bytes.Join(got, []byte{'\n'}), '\n'), all) {
		t.Fatal("not the whole run")
	}
	consumers := 0
	for p := range k.Partitions {
		s, err := k.JS.Stream(t.Context(), natskit.StreamName(p))
		if err != nil {
			t.Fatal(err)
		}
		consumers += s.CachedInfo().State.Consumers
	}
	if consumers != 0 {
		t.Fatalf("%d consumers", consumers)
	}
}

// deafTail never hears a copy.
type deafTail struct{ *natsjs.Log }

func (d deafTail) Watch(context.Context, schema.RunKey, func(schema.Pack)) (func(), error) {
	return func() {}, nil
}

func schematestBodies(packs []schema.Pack) (out [][]byte) {
	for _, p := range packs {
		out = append(out, p.Body)
	}
	return out
}
