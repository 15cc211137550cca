package live

import "time"

// maxGather bounds what a client that answers no probe adds to the wait of its subscriptions.
const maxGather = time.Second

// gathering is the wait of subscriptions that were opened for others to begin with them: a time, and until the client's
// messages that were under way have come. Without the second, a subscription that a client asked for in the same breath
// could begin after others have shown a run's end, whenever the machine is busy. It is changed with section held.
type gathering struct {
	timer   *time.Timer // nil: nothing waits
	round   int         // of the gatherings of the conversation
	elapsed bool        // the time is over
	reached bool        // the client's messages have come
}

// prober is a Socket that can tell what its client has sent. Probe calls reached, in the goroutine that receives, after
// everything that the client had sent before it read what was written until now. It may never be called.
type prober interface {
	Probe(reached func()) error
}

// stop ends the gathering.
func (g *gathering) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
	*g = gathering{round: g.round + 1}
}

// collect makes the fresh subscriptions wait, from the first of them on. It needs section.
func (c *Conversation) collect() {
	g := &c.gather
	if g.timer != nil {
		return
	}
	round := g.round
	g.timer = time.AfterFunc(c.cfg.Gather, func() {
		c.finishWait(round, func() {
			g.elapsed = true
			g.timer.Reset(maxGather)
		})
	})
	err := c.sink.(prober).Probe(func() {
		c.finishWait(round, func() { g.reached = true })
	})
	if err != nil {
		c.life.Stop(err)
	}
}

// finishWait notes that one of the waits of a round is over, and lets the subscriptions begin when both are, or
// the first has passed again.
func (c *Conversation) finishWait(round int, note func()) {
	c.section.Lock()
	defer c.section.Unlock()
	g := &c.gather
	if round != g.round {
		return
	}
	late := g.elapsed
	note()
	if g.elapsed && (g.reached || late) {
		c.start()
	}
}
