package persister

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
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

// MessageFrame is what the start or the end of a message says of a model or of its use.
type MessageFrame struct {
	Model                                *string // of a start; nil for none
	Reported                             bool    // an end says what was used
	Input, Output, CacheRead, CacheWrite int64
}

// ReadFrame reads the id of what a row begins or ends, as FrameID does, and of a start or an end of a message what it
// says, as every reader of JSON does. ok is false for what some may read in another way, and for what is seldom: names
// that stand twice, texts with escapes or without end, numbers that are no integers or huge, details and costs.
func ReadFrame(r *Row) (id string, f MessageFrame, ok bool) {
	const deep = 900 // SQLite reads JSON up to a depth of 1,000
	var some [8]jsonscan.Field
	p := jsonscan.Fields(some[:0]).Read(r.Payload)
	id, _ = jsonscan.Unquote(p.Raw(frameIDs[r.Type]))
	if r.Type != schema.TypeMessageStart && r.Type != schema.TypeMessageEnd {
		return id, f, false
	}
	if p == nil || !isOnce(p) || !r.plain && (!isLastField(r.Line, r.Payload) || !jsonscan.Valid(r.Line, deep)) {
		return id, f, false
	}
	if r.Type == schema.TypeMessageStart {
		f.Model, ok = plainText(p.Raw("model"))
		return id, f, ok
	}
	u := p.Object("usage")
	if u == nil {
		return id, f, true
	}
	f.Reported = true
	var counts [8]jsonscan.Field
	usage := jsonscan.Fields(counts[:0]).Read(u)
	return id, f, isOnce(usage) && f.count(usage)
}

// isLastField reports whether a line is an event whose last field is its payload, and has no other one with this name.
func isLastField(line, payload []byte) bool {
	const name = `"payload":`
	before, _ := bytes.CutSuffix(line, []byte("}"))
	before, ok := bytes.CutSuffix(before, payload)
	return ok && bytes.HasSuffix(before, []byte(name)) && bytes.Count(before, []byte(name)) == 1 &&
		bytes.IndexByte(before, '\\') < 0
}

// isOnce reports whether each name of an object stands once.
func isOnce(fields jsonscan.Fields) bool {
	const most = 32
	if len(fields) > most {
		return false
	}
	for i := range fields {
		for j := range i {
			if bytes.Equal(fields[i].Name, fields[j].Name) {
				return false
			}
		}
	}
	return true
}

// plainText returns a text, or nil for what is none.
func plainText(v []byte) (text *string, ok bool) {
	const most = 200 // characters that are kept
	if !jsonscan.IsString(v) {
		return nil, true
	}
	inner := v[1 : len(v)-1]
	if len(inner) > most || bytes.IndexByte(inner, '\\') >= 0 || !utf8.Valid(inner) {
		return nil, false
	}
	s := string(inner)
	return &s, true
}

// count reads the numbers of a usage.
func (f *MessageFrame) count(usage jsonscan.Fields) (ok bool) {
	var input, output, thoughts, within, read, write int64
	ok = true
	for _, name := range []string{"input_tokens_details", "prompt_tokens_details", "cost", "cost_usd", "total_cost_usd"} {
		ok = ok && usage.Raw(name) == nil
	}
	first := func(into *int64, names ...string) (found bool) {
		for _, name := range names {
			v := usage.Number(name)
			if v == nil {
				continue
			}
			n, err := strconv.ParseInt(string(v), 10, 64)
			const most = 1 << 53
			if err != nil || n < -most || n > most {
				ok = false
			}
			*into = n
			return true
		}
		return false
	}
	first(&input, "input_tokens", "prompt_tokens", "promptTokenCount")
	first(&output, "output_tokens", "completion_tokens", "candidatesTokenCount")
	first(&thoughts, "thoughtsTokenCount")
	first(&within, "cachedContentTokenCount")
	if !first(&read, "cache_read_input_tokens") {
		read = within
	}
	first(&write, "cache_creation_input_tokens")
	f.Input, f.Output, f.CacheRead, f.CacheWrite = max(input-within, 0), output+thoughts, read, write
	return ok
}
