package qoder

import (
	"strings"

	"agentstream/schema/jsonscan"
)

// waitingIDs names what waits, for the words of a refusal.
func (p *Projector) waitingIDs() string {
	var ids []string
	for _, c := range p.tools.waiting.All() {
		if ids = append(ids, c.id); len(ids) == maxNamed {
			break
		}
	}
	if len(ids) == 0 {
		return "; nothing waits"
	}
	return "; these wait: " + strings.Join(ids, ", ")
}

// maxNamed bounds what a refusal names.
const maxNamed = 8

// dropLapsed closes what the record at hand has ended without an answer, and returns it: a request whose call or turn
// has ended, and all that a lane has asked which was told to cancel.
func (p *Projector) dropLapsed() (dropped []*toolCall) {
	for _, q := range p.reading.AsksWithoutAnswer() {
		c := p.tools.callOfRequest(jsonscan.AppendString(nil, q.Request))
		if q.Request == "" {
			c = p.tools.call(callKey(q.Child, jsonscan.AppendString(nil, q.Call)))
		}
		if c != nil && p.tools.isHeld(c.key) {
			p.tools.drop(c.key)
			dropped = append(dropped, c)
		}
	}
	return dropped
}

// lapse closes what the record at hand has ended without an answer, and goes on. A lane that only waited is cancelled
// with that.
func (p *Projector) lapse() {
	for _, c := range p.dropLapsed() {
		if string(p.rec.Type) != typeCancel {
			p.settleAll(c.child)
			continue
		}
		for _, lane := range []string{c.child, ""} {
			if t := p.threads.lanes.m[lane]; t != nil && p.tools.countWaiting(lane) == 0 && !t.running &&
				t.stop == stopAction && !t.held {
				p.finish(t, stopCancelled)
			}
		}
	}
}
