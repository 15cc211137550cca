//go:build !race

package edge_test

import (
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/producers"
	"agentstream/schema"
)

// idleCost returns what a stream takes on which nothing comes, and the event before it, without its client.
func idleCost(t *testing.T, addr string, way publishWay, own bool, then func(*idlers)) int {
	const streams = 1000
	v := &idlers{way: way, buf: make([]byte, 64<<10)}
	defer func() { closeAll(v.clients) }()
	v.add(t, addr, 1, own) // what the first one needs once is no cost of a stream
	before := inUse()
	v.add(t, addr, streams, own)
	time.Sleep(2 * stillAlive) // what a stream has not needed meanwhile is let go
	took := inUse() - before
	for range 2 { // less a sign of life that is on its way
		took = min(took, inUse()-before)
	}
	if then != nil {
		then(v)
	}
	if own {
		took -= dialled(t, streams)
	}
	return took / streams
}

// Publish streams on which nothing comes are small, on every way, also when something came before. Over HTTP/2 this holds for
// streams that share a connection: what each connection takes there, net/http takes alone.
func TestIdlePublishStreamsAreSmall(t *testing.T) {
	const most = 16 << 10
	for name, way := range publishWays() {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, func(c *edge.Config) { c.KeepAlive = stillAlive })
			log := h.logged(1000)
			each := idleCost(t, h.addr, way, !way.many, func(v *idlers) {
				for i := 1; i < len(v.clients); i += 100 {
					v.say(i, v.streams/2) // they have not been forgotten
				}
			}) - log
			t.Logf("%d bytes for each stream, and %d for its event in the log", each, log)
			if each > most {
				t.Errorf("%d bytes for each stream, want at most %d", each, most)
			}
			if !way.many {
				return
			}
			for own, ours := range map[bool]int{false: 6 << 10, true: 12 << 10} { // a connection of ours has pings
				each := idleCost(t, h.addr, way, own, nil) - log
				bare := idleCost(t, bareServer(t), way, own, nil)
				t.Logf("a connection for each: %v: %d bytes, of which net/http takes %d", own, each, bare)
				if each-bare > ours {
					t.Errorf("%d bytes for each beside those of net/http, want at most %d", each-bare, ours)
				}
			}
		})
	}
}

// logged returns what one of n events takes in the log of the test.
func (h *house) logged(n int) int {
	before := inUse()
	for range n {
		e := schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"a"}`)}
		if err := e.Prepare("logged"); err != nil {
			h.t.Fatal(err)
		}
		if _, err := h.app.Append(h.t.Context(), runOf("logged"), []schema.Event{e}, producers.AppendOptions{}); err != nil {
			h.t.Fatal(err)
		}
	}
	return (inUse() - before) / n
}
