package persister

import (
	"strings"

	"agentstream/schema"
)

// Digest is what a run's events say that a list of runs shows, collected while they pass. The zero
// Digest is ready; one goroutine at a time.
type Digest struct {
	Usage     []SeqUsage // of each message.end that has one, in the order of Add
	Reason    string     // of the newest run.lifecycle of the root; "" when it gave none
	ReasonOf  schema.RunState
	ReasonSeq schema.Seq // of that event; 0: there was none
	Turn      schema.Turn
	Stop      string     // with Turn, of schema.TurnOf
	TurnSeq   schema.Seq // of the event that decided; 0: there was none
}

// SeqUsage is the usage that one event reports.
type SeqUsage struct {
	Seq   schema.Seq
	Usage schema.Usage
}

// Add takes an event, each seq once.
func (d *Digest) Add(seq schema.Seq, typ, child string, payload []byte) {
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
		d.Reason, d.ReasonOf, d.ReasonSeq = "", l.State, seq
		if l.Reason != nil {
			d.Reason = storable(*l.Reason)
		}
	}
}

// storable is a reason, or a stop, as every database keeps it: short, valid, without NUL.
func storable(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return schema.CutReason(s)
}

// Sum adds up what is not skipped. skip may be nil.
func (d *Digest) Sum(skip map[schema.Seq]bool) schema.Usage {
	var sum schema.Usage
	for _, u := range d.Usage {
		if !skip[u.Seq] {
			sum = sum.Plus(u.Usage)
		}
	}
	return sum
}
