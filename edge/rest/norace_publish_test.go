//go:build !race

package rest_test

import (
	"math"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/schema"
)

// idleCost returns what a stream takes on which nothing comes, and the event before it, without its client.
func idleCost(t *testing.T, addr string, way publishWay, own bool, then func(*idlers)) int {
	const streams = 1000
	v := &idlers{way: way, buf: make([]byte, 64<<10)}
	defer func() { edgetest.CloseAll(v.clients) }()
	v.add(t, addr, 1, own) // what the first one needs once is no cost of a stream
	before := edgetest.InUse()
	v.add(t, addr, streams, own)
	took := settle(before)
	if then != nil {
		then(v)
	}
	if own {
		took -= edgetest.DialCost(t, streams)
	}
	return took / streams
}

// settle returns what is in use more than before, after it has stopped falling: a stream lets go what it has not needed
// for a while, which takes longer on a busy machine, and a sign of life may be on its way.
func settle(before int) int {
	took := math.MaxInt
	for still := 0; still < 3; still++ {
		time.Sleep(stillAlive)
		now := edgetest.InUse() - before
		if now < took-took/50 {
			still = 0
		}
		took = min(took, now)
	}
	return took
}

// Publish streams on which nothing comes are small, on every way, also when something came before. Over HTTP/2 this
// holds for streams that share a connection: what each connection takes there, net/http takes alone.
func TestIdlePublishStreamsAreSmall(t *testing.T) {
	const most = 16 << 10
	for name, way := range publishWays() {
		t.Run(name, func(t *testing.T) {
			h := edgetest.NewHouse(t, func(c *edge.Config) { c.KeepAlive = stillAlive })
			log := bytesInLog(h, 1000)
			each := idleCost(t, h.Addr, way, !way.many, func(v *idlers) {
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
				each := idleCost(t, h.Addr, way, own, nil) - log
				bare := idleCost(t, bareServer(t), way, own, nil)
				t.Logf("a connection for each: %v: %d bytes, of which net/http takes %d", own, each, bare)
				if each-bare > ours {
					t.Errorf("%d bytes for each beside those of net/http, want at most %d", each-bare, ours)
				}
			}
		})
	}
}

// bytesInLog returns what one of n events takes in the log of the test.
func bytesInLog(h *edgetest.House, n int) int {
	before := edgetest.InUse()
	for range n {
		e := schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"a"}`)}
		if err := e.Prepare("logged"); err != nil {
			h.T.Fatal(err)
		}
		if _, err := h.Appender.Append(h.T.Context(), edgetest.RunOf("logged"), []schema.Event{e},
			producers.AppendOptions{}); err != nil {
			h.T.Fatal(err)
		}
	}
	return (edgetest.InUse() - before) / n
}
