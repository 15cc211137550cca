package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// Three servers, three replicas: leaders step down and one server after the other is stopped and
// started while writers write, shared and on lanes of their own, and readers read from the middle
// of it. Everything acknowledged is there once, in each writer's order, for every reader.
func TestClusterKeepsItsPromisesWhileLeadersChange(t *testing.T) {
	beside(t)
	c := testkit.NATSCluster(t)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	var conflicts, retries atomic.Int64
	hooks := producers.Hooks{Conflict: func() { conflicts.Add(1) }, Retry: func(error) { retries.Add(1) }}
	const writers = 6
	var acked [writers]atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing sync.WaitGroup
	for w := range writers {
		log, err := pubjs.Open(t.Context(), c.Dial(t))
		if err != nil {
			t.Fatal(err)
		}
		pub, _ := producers.New(producers.Config{Log: log, Key: key, Shared: w%2 == 0, Timeout: time.Second, Hooks: hooks})
		lane := ""
		if w%2 == 1 {
			lane = fmt.Sprintf("child_%d", w)
		}
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				e := schema.Event{Type: schema.TypeTextDelta, ChildID: lane, Payload: fmt.Appendf(nil, `{"text":"w%d:%d"}`, w, i)}
				if _, err := pub.Append(context.Background(), e); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				acked[w].Add(1)
			}
			if err := pub.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	stream := natskit.RunAddress{Key: key, Partitions: c.Partitions}.Stream()
	disturb(t, c, stream)
	cancel()
	writing.Wait()

	reader, err := fanjs.Open(t.Context(), c.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	readCtx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() { _ = reader.Run(readCtx) })
	defer func() { stop(); reading.Wait() }()
	hub := fanouttest.OpenHub(t, fanout.Config{Stream: reader, Tail: reader})
	head, err := hub.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := fanouttest.Read(t.Context(), hub, key, 0, head.Last, nil)
	if err != nil {
		t.Fatal(err)
	}
	var next [writers]int64
	for i, line := range lines {
		var w int
		var n int64
		text := string(line[strings.LastIndex(string(line), `{"text":"w`):])
		if _, err := fmt.Sscanf(text, `{"text":"w%d:%d"}`, &w, &n); err != nil || n != next[w] {
			t.Fatalf("seq %d: %s where event %d of writer %d is next (%v)", i+1, text, next[w], w, err)
		}
		next[w]++
	}
	total := int64(0)
	for w := range acked {
		if next[w] != acked[w].Load() {
			t.Fatalf("writer %d: %d acknowledged, %d stored", w, acked[w].Load(), next[w])
		}
		total += next[w]
	}
	if conflicts.Load() == 0 || retries.Load() == 0 {
		t.Fatalf("%d conflicts, %d retries: a fault never fired", conflicts.Load(), retries.Load())
	}
	t.Logf("%d events, %d conflicts, %d retries: 0 lost, 0 doubled, 0 holes", total, conflicts.Load(), retries.Load())
}

// disturb makes leaders change while others write.
func disturb(t *testing.T, c *testkit.Cluster, stream string) {
	t.Helper()
	admin := c.Dial(t)
	for i := range 3 {
		<-time.After(500 * time.Millisecond)
		stepDown(t, admin, stream)
		<-time.After(500 * time.Millisecond)
		c.Stop(i)
		<-time.After(time.Second)
		c.Start(t, i)
		// The next server may only go when this one is a full member again: a quorum must live.
		eventually(t, 60*time.Second, "all replicas are current", func() bool { return current(admin, stream) })
	}
}

func stepDown(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 5*time.Second); err != nil {
		t.Logf("step-down: %v", err) // nobody leads at the moment: that is a change too
	}
}

func current(nc *nats.Conn, stream string) bool {
	m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, 2*time.Second)
	if err != nil {
		return false
	}
	var info struct {
		Cluster struct {
			Leader   string `json:"leader"`
			Replicas []struct {
				Current bool `json:"current"`
			} `json:"replicas"`
		} `json:"cluster"`
	}
	if json.Unmarshal(m.Data, &info) != nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != 2 {
		return false
	}
	return info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current
}
