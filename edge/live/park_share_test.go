package live_test

import (
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// counted is the native dialect, whose projectors count what they are fed.
type counted struct {
	native.Dialect
	shared bool
	n      *atomic.Int64
}

func (d counted) Streams() []protocol.Stream {
	list := native.Protocol().Streams
	for i := range list {
		list[i].Shared = d.shared
	}
	return list
}

func (d counted) Projector(req dialect.Request) dialect.Projector {
	return countedProjector{d.Dialect.Projector(req), d.n}
}

type countedProjector struct {
	dialect.Projector
	n *atomic.Int64
}

func (p countedProjector) Project(out *dialect.Frames, r schema.Record) error {
	p.n.Add(1)
	return p.Projector.Project(out, r)
}

// TestFramesAreBuiltOnce counts projections: one for each event and form of the view, however many watch;
// one for each client where a dialect's frames are not to be shared.
func TestFramesAreBuiltOnce(t *testing.T) {
	const watchers, events = 40, 10
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			var n atomic.Int64
			h := edgetest.NewHouse(t, func(c *edge.Config) { c.Protocols = edgetest.Speak(counted{shared: shared, n: &n}) })
			w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
			w.state("running")
			var taps []*edgetest.Tap
			for i := range watchers {
				// Two views, in two forms each.
				taps = append(taps, h.MustTap(carriers[i%2], watched+[]string{"", "?detail=full"}[i/2%2], 0))
			}
			want := int64(4)
			if !shared {
				want = watchers
			}
			for i := range events {
				for _, k := range taps {
					readUntil(k, schema.Seq(i+1))
				}
				if shared {
					settle(h, watchers)
				} else if c := h.Server.Census(); c.Parked > 0 || c.Streams != watchers || c.Views != 2 {
					t.Fatalf("%+v", c)
				}
				if got := n.Swap(0); i > 0 && got != want { // the first is history to each
					t.Errorf("event %d was projected %d times, want %d", i+1, got, want)
				}
				w.progress()
			}
		})
	}
}

// guest is a client of the model.
type guest struct {
	*edgetest.Tap
	trail
	after schema.Seq
	gate  gate
	over  chan error // how it ended
}

func (g *guest) read() {
	for {
		g.gate.wait()
		line, err := g.Event()
		if err != nil {
			g.over <- err
			return
		}
		g.see(line)
	}
}

// TestParkedAgainstModel lets clients come with any cursor, stall, go on and leave while a run is written,
// in any order: who stays gets exactly the rest behind its cursor, who leaves has got its beginning.
func TestParkedAgainstModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(11, seed))
			h := edgetest.NewHouse(t, func(c *edge.Config) { c.SendBuffer = 4 << 10; c.KeepAlive = 20 * time.Millisecond })
			w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
			w.state("running")
			m := model{t: t, h: h, rng: rng}
			for range 150 {
				switch n := rng.IntN(10); {
				case n < 4:
					for range rng.IntN(4) + 1 {
						w.text(rng.IntN(3000))
					}
				case n < 5:
					w.progress()
				case n < 7 && len(m.guests) < 15:
					m.join(w.head.Last)
				case n < 8:
					m.pick(func(g *guest) { g.gate.set(true) })
				case n < 9:
					m.pick(func(g *guest) { g.gate.set(false) })
				case rng.IntN(3) == 0:
					m.pick(m.leave)
				default:
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond) // some get to be parked
				}
			}
			m.join(w.head.Last)
			w.state("done")
			for _, g := range m.guests {
				g.gate.set(false)
				err := <-g.over
				g.Tcp.Close()
				if !isComplete(g.Tap, err) {
					t.Errorf("ends with %v behind %d of %d", err, g.last, w.head.Last)
				}
				if err := g.check(w.head.Last, sumAfter(h, g.after)); err != nil {
					t.Errorf("behind %d, full %v, ws %v: %v", g.after, g.full, g.Ws, err)
				}
			}
			h.Vacant()
			if got := len(streamLogs(h)); got != m.joined {
				t.Errorf("%d streams of %d were logged", got, m.joined)
			}
		})
	}
}

type model struct {
	t      *testing.T
	h      *edgetest.House
	rng    *rand.Rand
	guests []*guest
	joined int
}

func (m *model) join(last schema.Seq) {
	m.t.Helper()
	g := &guest{after: schema.Seq(m.rng.Int64N(int64(last) + 1)), over: make(chan error, 1)}
	g.trail.last, g.full = g.after, m.rng.IntN(2) == 0
	path := watched + "?after=" + g.after.String()
	if g.full {
		path += "&detail=full"
	}
	var err error
	if g.Tap, err = m.h.Tap(carriers[m.rng.IntN(2)], path, m.rng.IntN(2)*16<<10); err != nil {
		m.t.Fatal(err)
	}
	m.guests = append(m.guests, g)
	m.joined++
	go g.read()
}

func (m *model) pick(do func(*guest)) {
	if len(m.guests) > 0 {
		do(m.guests[m.rng.IntN(len(m.guests))])
	}
}

func (m *model) leave(g *guest) {
	m.t.Helper()
	g.Tcp.Close()
	g.gate.set(false)
	<-g.over
	if g.fault != "" || g.full && g.gaps > 0 {
		m.t.Errorf("who leaves behind %d: %s, %d are missing", g.last, g.fault, g.gaps)
	}
	if g.full { // what it has is the log's beginning behind its cursor
		var want trail
		for p, err := range m.h.Hub.Packs(m.t.Context(), schema.RunKey{Tenant: "acme", Run: "run"}, g.after, g.last) {
			if err != nil {
				m.t.Fatal(err)
			}
			for r, err := range p.Records(g.after) {
				if err != nil {
					m.t.Fatal(err)
				}
				if r.Seq <= g.last {
					want.sum = crc32.Update(want.sum, crc32.IEEETable, r.Line)
				}
			}
		}
		if want.sum != g.sum {
			m.t.Errorf("who leaves behind %d has other lines than the log", g.last)
		}
	}
	for i := range m.guests {
		if m.guests[i] == g {
			m.guests = append(m.guests[:i], m.guests[i+1:]...)
			return
		}
	}
}

// BenchmarkFanout delivers one event after another to parked watchers over loopback.
func BenchmarkFanout(b *testing.B) {
	for _, carrier := range carriers {
		for _, watchers := range []int{1, 10, 100, 1000} {
			b.Run(carrier+"/"+strconv.Itoa(watchers), func(b *testing.B) { fanOut(b, carrier, watchers) })
		}
	}
}

func fanOut(b *testing.B, carrier string, watchers int) {
	var sent atomic.Int64
	h := edgetest.NewHouse(b, func(c *edge.Config) {
		c.Logger = nil
		c.Hooks.EventsSent = func(_ string, n int, _ int64) { sent.Add(int64(n)) }
	})
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"progress"}`)
	var conns []*net.TCPConn
	for range watchers {
		k := h.MustTap(carrier, watched+"?detail=full", 0)
		readUntil(k, 1)
		_ = k.Tcp.SetDeadline(time.Time{})
		conns = append(conns, k.Tcp.(*net.TCPConn))
	}
	settle(h, watchers)
	var drains sync.WaitGroup
	stop := make(chan struct{})
	for i := 0; i < watchers; i += 100 {
		some := conns[i:min(i+100, watchers)]
		drains.Go(func() { drain(some, stop) })
	}
	sent.Store(0)
	given := int64(0)
	body := []byte(`{"type":"text.delta","payload":{"text":"~00000.0000000000.0000000000000000000~ The quick brown fox jumps"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if a := h.Do("POST", "/v1/agent/runs/run/events", string(body)); a.Status != 200 {
			b.Fatalf("%d %s", a.Status, a.Body)
		}
		for given += int64(watchers); sent.Load() < given; {
			time.Sleep(20 * time.Microsecond) // the next event must not join this one in one write
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(given), "ns/delivery")
	close(stop)
	drains.Wait()
}

// drain reads what comes on some connections, in turns.
func drain(some []*net.TCPConn, stop chan struct{}) {
	b := make([]byte, 64<<10)
	for {
		for _, c := range some {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			for {
				if _, err := c.Read(b); err == io.EOF {
					return
				} else if err != nil {
					break
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}
