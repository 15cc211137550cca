package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// exchange is what connects nodes in a test: messages take a moment, may be lost, and do not come through to who is cut
// off.
type exchange struct {
	mu    sync.Mutex
	nodes map[*plug]bool
	lose  float64
	rnd   *rand.Rand
}

// plug is one node's end of it.
type plug struct {
	x       *exchange
	away    bool
	receive func([]byte)
}

func (p *plug) Publish(message []byte) error {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	if p.away {
		return errors.New("away")
	}
	for other := range p.x.nodes {
		if other == p || other.away || p.x.rnd.Float64() < p.x.lose {
			continue
		}
		time.AfterFunc(5*time.Millisecond, func() {
			p.x.mu.Lock()
			receive := other.receive
			p.x.mu.Unlock()
			if receive != nil {
				receive(message)
			}
		})
	}
	return nil
}

func (p *plug) Subscribe(receive func([]byte)) (func(), error) {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	if p.away {
		return nil, errors.New("away")
	}
	p.receive = receive
	return func() { p.x.mu.Lock(); p.receive = nil; p.x.mu.Unlock() }, nil
}

// cut cuts a node off, or brings it back.
func (p *plug) cut(away bool) {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	p.away = away
}

// cluster is nodes that share limits.
type cluster struct {
	t     *testing.T
	x     *exchange
	limit Limit
	nodes []*member
}

type member struct {
	l     *Limiter
	plug  *plug
	stop  func()
	taken int // events, of any time
}

func clusterOf(t *testing.T, limit Limit, lose float64) *cluster {
	return &cluster{t: t, limit: limit, x: &exchange{nodes: map[*plug]bool{}, lose: lose,
		rnd: rand.New(rand.NewPCG(1, 2))}}
}

// join adds a node.
func (c *cluster) join() *member {
	m := &member{l: New(c.limit, nil), plug: &plug{x: c.x}}
	ctx, cancel := context.WithCancel(c.t.Context())
	peers := NewPeers(m.l, m.plug, fmt.Sprint("node", len(c.nodes)))
	var run sync.WaitGroup
	run.Go(func() { peers.Run(ctx) })
	m.stop = func() { cancel(); run.Wait() }
	c.x.mu.Lock()
	c.x.nodes[m.plug] = true
	c.x.mu.Unlock()
	c.nodes = append(c.nodes, m)
	c.t.Cleanup(m.stop)
	return m
}

// send has nodes asked for so long, each as fast as weight says: many times what the limit allows. It returns what was
// taken a second, as a part of the limit.
func (c *cluster) send(took time.Duration, size int, weights ...int) float64 {
	c.t.Helper()
	before := c.total()
	for until := time.Now().Add(took); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for i, w := range weights {
			for range w {
				c.nodes[i].send(size)
			}
		}
	}
	return float64(c.total()-before) / took.Seconds() / float64(c.limit.Events)
}

func (c *cluster) total() (n int) {
	for _, m := range c.nodes {
		n += m.taken
	}
	return n
}

func (m *member) send(events int) {
	meter, err := m.l.Enter("acme", true)
	if err != nil {
		return
	}
	defer m.l.Leave(meter, true)
	if m.l.Spend(meter, events, int64(100*events)) == nil {
		m.taken += events
	}
}

// even has all nodes asked alike, and checks that each gets something like its part.
func (c *cluster) even(when string, took time.Duration, gone ...*member) {
	c.t.Helper()
	weights, before := make([]int, len(c.nodes)), make([]int, len(c.nodes))
	for i, m := range c.nodes {
		if before[i] = m.taken; !slices.Contains(gone, m) {
			weights[i] = 2
		}
	}
	all := c.send(took, 5, weights...) * took.Seconds() * float64(c.limit.Events)
	for i, m := range c.nodes {
		part := float64(m.taken-before[i]) / all
		if weights[i] > 0 && part < 0.5/float64(len(c.nodes)-len(gone)) {
			c.t.Errorf("%s: node %d has %.2f of what is taken", when, i, part)
		}
	}
}

// near checks that a part is within a tenth of what is wanted.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %.3f of the limit", what, got)
	if got < 0.9*want || got > 1.1*want {
		t.Errorf("%s: %.3f of the limit, want %.2f", what, got, want)
	}
}

// What a tenant may write is one amount for all nodes: at one, at all alike, at some more than at others, in requests
// of any size, also when every tenth message between the nodes is lost.
func TestRatesOfACluster(t *testing.T) {
	for nodes := 2; nodes <= 5; nodes++ {
		for _, size := range []int{1, 10, 300} {
			for _, lose := range []float64{0, 0.1} {
				synctest.Test(t, func(t *testing.T) {
					c := clusterOf(t, Limit{Events: 1000}, lose)
					alike, uneven, one := make([]int, nodes), make([]int, nodes), make([]int, nodes)
					for i := range nodes {
						c.join()
						alike[i], uneven[i] = 2, i
					}
					one[nodes-1] = 5
					name := fmt.Sprintf("%d nodes, %d events a request, %.0f %% lost", nodes, size, 100*lose)
					near(t, name+", alike", c.send(20*time.Second, size, alike...), 1)
					near(t, name+", uneven", c.send(20*time.Second, size, uneven...), 1)
					near(t, name+", at one", c.send(20*time.Second, size, one...), 1)
				})
			}
		}
	}
}

// A node may come, leave, die, or be cut off: the others go on with the whole of the limit, and are right again when it
// is back.
func TestClusterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, Limit{Events: 1000, Bytes: 200_000}, 0)
		c.join()
		c.join()
		near(t, "two", c.send(20*time.Second, 5, 2, 2), 1)
		joined := c.join()
		near(t, "one has joined", c.send(20*time.Second, 5, 2, 2, 2), 1)
		c.even("after one has joined", 10*time.Second)
		joined.stop() // it says nothing when it leaves, as one that dies
		near(t, "it has gone", c.send(20*time.Second, 5, 2, 2), 1)
		cut := c.nodes[1]
		cut.plug.cut(true)
		before := cut.taken
		// A node without NATS can store nothing; what it takes all the same is bounded by the limit.
		c.send(30*time.Second, 5, 2, 2)
		near(t, "at the one that is cut off", float64(cut.taken-before)/30_000, 1)
		cut.plug.cut(false)
		near(t, "when it is back", c.send(20*time.Second, 5, 2, 2), 1)
		c.even("after it is back", 10*time.Second, joined)
		// What it has taken while the other one was idle is known afterwards.
		cut.plug.cut(true)
		c.send(30*time.Second, 5, 0, 2)
		cut.plug.cut(false)
		near(t, "when it is back again", c.send(20*time.Second, 5, 2, 2), 1)
		c.even("after it is back again", 10*time.Second, joined)
	})
}

// Bytes are limited as events are, and a request that is larger than what a second allows is made up for at all nodes.
func TestLargeRequestCountsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, Limit{Events: 100}, 0)
		a, b := c.join(), c.join()
		time.Sleep(time.Minute)
		a.send(1000)
		time.Sleep(200 * time.Millisecond)
		for range 85 { // nine of ten seconds
			time.Sleep(100 * time.Millisecond)
			b.send(1)
		}
		if a.taken != 1000 || b.taken != 0 {
			t.Errorf("%d and %d are taken", a.taken, b.taken)
		}
		time.Sleep(time.Second)
		if b.send(1); b.taken != 1 {
			t.Error("nothing is taken after the time")
		}
	})
}

// stuckBus is one that never returns.
type stuckBus struct{ never chan struct{} }

func (b stuckBus) Publish([]byte) error { <-b.never; return nil }
func (b stuckBus) Subscribe(func([]byte)) (func(), error) {
	return func() {}, nil
}

// Who writes does not wait for the exchange, whatever becomes of it, and what nodes say is not believed without a look.
func TestExchangeHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, bus := New(Limit{Events: 1000}, nil), stuckBus{make(chan struct{})}
		p := NewPeers(l, bus, "here")
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		m := &member{l: l}
		began := time.Now()
		m.send(1)
		time.Sleep(time.Second)
		for range 100 {
			m.send(1)
		}
		if m.taken != 101 || time.Since(began) != time.Second {
			t.Errorf("%d taken in %v", m.taken, time.Since(began))
		}
		time.Sleep(time.Minute)
		for _, bad := range []string{"", "{", `{"node":"x","used":[{"tenant":"acme","events":-1,"new_events":-5}]}`,
			`{"node":"x","used":[{"tenant":"a.b","new_events":1,"events":1}]}`,
			`{"node":"here","used":[{"tenant":"acme","events":100000,"new_events":100000}]}`,
			`{"node":"x","used":[{"tenant":"acme","events":5,"new_events":100000}]}`,
			`{"node":"x","used":null}`, `[]`, `{"node":"x","used":[{"tenant":"acme","events":9223372036854775808}]}`} {
			p.hear([]byte(bad))
		}
		m.send(1)
		if m.taken != 102 {
			t.Error("what is no report counts")
		}
		for range 3 { // nor does it overflow
			p.hear([]byte(`{"node":"x","used":[{"tenant":"acme","events":9223372036854775807,"new_events":9223372036854775807,"bytes":1,"new_bytes":1}]}`))
		}
		if m.send(1); m.taken != 102 {
			t.Error("what another node has used does not count")
		}
		cancel()
		close(bus.never)
		run.Wait()
	})
}
