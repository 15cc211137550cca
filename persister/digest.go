package persister

import (
	"strings"
	"time"

	"agentstream/schema"
)

// Digest collects from a run's events what a list of runs shows. The zero Digest is ready to use, by one goroutine at a
// time.
type Digest struct {
	Usage     []SeqUsage // of each message.end that has one, in the order of Add
	Reason    string     // of the newest run.lifecycle of the root; "" when it has none
	ReasonOf  schema.RunState
	ReasonSeq schema.Seq // of that event; 0: there was none
	Since     time.Time  // when the run has come to that state, as far as the events say
	Same      bool       // all of them have that state: it may have come to it before
	Turn      schema.Turn
	Stop      string     // with Turn, of schema.TurnOf
	TurnSeq   schema.Seq // of the event from which Turn is; 0: there was none
}

// SeqUsage is the usage that one event reports.
type SeqUsage struct {
	Seq   schema.Seq
	Usage schema.Usage
}

// Add adds an event. Each seq must be added once.
func (d *Digest) Add(seq schema.Seq, ts time.Time, typ, child string, payload []byte) {
	if child == "" && seq > d.TurnSeq {
		if turn, stop, ok := schema.TurnOf(typ, payload); ok {
			d.Turn, d.Stop, d.TurnSeq = turn, storable(stop), seq
		}
	}
	switch typ {
	case schema.TypeMessageEnd:
		if u := schema.UsageOf(payload); u != nil {
			d.Usage = append(d.Usage, SeqUsage{seq, u})
		}
	case schema.TypeRunLifecycle:
		if child != "" || seq <= d.ReasonSeq {
			return
		}
		l, err := schema.ParseLifecycle(payload)
		if err != nil { // the head does not follow it either
			return
		}
		if first := d.ReasonSeq == 0; first || d.ReasonOf != l.State {
			d.Since, d.Same = ts, first
		}
		d.Reason, d.ReasonOf, d.ReasonSeq = "", l.State, seq
		if l.Reason != nil {
			d.Reason = storable(*l.Reason)
		}
	}
}

// storable returns a reason, or a stop, in a form that every database can keep: short, valid UTF-8, without NUL.
func storable(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return schema.CutReason(s)
}

// Sum returns the sum of the usage, without the events in skip, which may be nil.
func (d *Digest) Sum(skip map[schema.Seq]bool) schema.Usage {
	var sum schema.Usage
	for _, u := range d.Usage {
		if !skip[u.Seq] {
			sum = sum.Plus(u.Usage)
		}
	}
	return sum
}
