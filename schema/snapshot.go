package schema

import (
	"strconv"

	"agentstream/schema/jsonscan"
)

// AppendSnapshot appends the fold as one JSON object (contracts/snapshot.schema.json). Strings that
// are absent or empty are null, except text; values that came as JSON are as they came.
func (f *Fold) AppendSnapshot(dst []byte) []byte {
	w := snapshotWriter{append(dst, '{')}
	w.str("run_id", f.Run)
	w.seq("last_seq", f.Last)
	w.str("last_id", f.LastID())
	w.str("last_ts", f.LastTS())
	w.str("state", string(f.State))
	w.str("reason", f.Reason)
	w.seq("state_seq", f.StateSeq)
	w.str("state_ts", f.StateTS)
	w.borders(f.lanes[""], f.State, f.StateSeq)
	if f.Session != nil {
		w.raw("session", f.Session)
	}
	w.str("planning_gate", f.Gate)
	w.name("plan")
	if f.Plan == nil {
		w.b = append(w.b, "null"...)
	} else {
		w.plan(f.Plan)
	}
	w.list("messages")
	for _, m := range f.Messages {
		w.message(m)
	}
	w.close(']')
	w.writeStarts(f)
	w.list("tool_calls")
	for _, c := range f.Calls {
		w.call(c)
	}
	w.close(']')
	w.list("children")
	for _, c := range f.Children {
		w.child(c, f.lanes[c.ID])
	}
	w.close(']')
	w.usage(&f.Usage)
	w.list("inputs")
	for _, in := range f.Inputs {
		w.input(in)
	}
	w.close(']')
	w.list("waits")
	for _, a := range f.waits.Open() {
		w.wait(&a)
	}
	w.close(']')
	if settled := f.waits.listPast(); len(settled) > 0 {
		w.list("settled")
		for _, a := range settled {
			w.open('{')
			w.str("request_id", a.Request)
			w.str("call_id", a.Call)
			w.str("child_id", a.Child)
			w.close('}')
		}
		w.close(']')
	}
	w.list("commands")
	for _, c := range f.Commands() {
		w.command(c)
	}
	w.close(']')
	w.close('}')
	return w.b
}

// snapshotWriter appends JSON. Commas go before what is not the first.
type snapshotWriter struct{ b []byte }

func (w *snapshotWriter) comma() {
	if n := len(w.b); n > 0 {
		switch w.b[n-1] {
		case '{', '[', ':', ',':
		default:
			w.b = append(w.b, ',')
		}
	}
}

// open begins an element of a list or the value of a name.
func (w *snapshotWriter) open(c byte)  { w.comma(); w.b = append(w.b, c) }
func (w *snapshotWriter) close(c byte) { w.b = append(w.b, c) }

func (w *snapshotWriter) name(s string) {
	w.comma()
	w.b = append(jsonscan.AppendDecoded(w.b, s), ':')
}

func (w *snapshotWriter) list(name string) { w.name(name); w.open('[') }

func (w *snapshotWriter) str(name, s string) {
	w.name(name)
	if s == "" {
		w.b = append(w.b, "null"...)
		return
	}
	w.b = jsonscan.AppendDecoded(w.b, s)
}

func (w *snapshotWriter) text(name string, t *JSONText) {
	w.name(name)
	w.b = append(append(append(w.b, '"'), t.inner...), '"')
}

func (w *snapshotWriter) raw(name string, v []byte) {
	w.name(name)
	if v == nil {
		v = jsonNull
	}
	w.b = append(w.b, v...)
}

func (w *snapshotWriter) bool(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *snapshotWriter) int(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

// seq writes a number that is null when it is 0.
func (w *snapshotWriter) seq(name string, n Seq) {
	if n == 0 {
		w.raw(name, nil)
		return
	}
	w.int(name, int64(n))
}

func (w *snapshotWriter) plan(p *FoldPlan) {
	w.open('{')
	w.str("plan_id", p.ID)
	w.str("child_id", p.Child)
	w.seq("seq", p.Seq)
	w.str("gate", p.Gate)
	w.str("decision", p.Decision)
	w.seq("decided_seq", p.Decided)
	w.raw("payload", p.Payload)
	w.close('}')
}

func (w *snapshotWriter) message(m *FoldMessage) {
	w.open('{')
	w.str("message_id", m.ID)
	w.str("child_id", m.Child)
	w.str("role", m.Role)
	w.str("model", m.Model)
	w.bool("announced", !m.implicit)
	w.list("blocks")
	for _, b := range m.Blocks {
		w.block(b)
	}
	w.close(']')
	w.seq("start_seq", m.Start)
	w.seq("end_seq", m.End)
	w.str("stop_reason", m.StopReason)
	w.raw("usage", m.Usage)
	w.raw("error", m.Error)
	w.close('}')
}

// block writes what its kind has: a block of text is nearly always nothing but text.
func (w *snapshotWriter) block(b *FoldBlock) {
	w.open('{')
	w.int("index", int64(b.Index))
	w.str("kind", b.Kind)
	w.text("text", &b.Text)
	w.bool("open", !b.closed)
	w.bool("complete", b.Complete)
	if b.Call != "" || b.Tool != "" {
		w.str("call_id", b.Call)
		w.str("tool", b.Tool)
	}
	if b.Input != nil {
		w.raw("input", b.Input)
	}
	if b.Raw != nil {
		w.raw("block", b.Raw)
	}
	if b.Data != nil {
		w.str("media_type", b.MediaType)
		w.str("name", b.Name)
		w.list("data")
		for _, d := range b.Data {
			w.comma()
			w.b = jsonscan.AppendDecoded(w.b, d)
		}
		w.close(']')
	}
	w.close('}')
}

func (w *snapshotWriter) call(c *FoldCall) {
	w.open('{')
	w.str("call_id", c.ID)
	w.str("child_id", c.Child)
	w.str("tool", c.Tool)
	w.raw("input", c.Input)
	switch {
	case !c.Done:
		w.str("state", "running")
	case c.OK:
		w.str("state", "ok")
	default:
		w.str("state", "failed")
	}
	w.text("streamed", &c.Stream)
	w.raw("output", c.Output)
	w.raw("error", c.Error)
	w.raw("duration_ms", c.Duration)
	w.str("blob_ref", c.Blob)
	w.seq("start_seq", c.Start)
	w.seq("end_seq", c.End)
	if c.implicit {
		w.bool("announced", false)
	}
	w.close('}')
}

func (w *snapshotWriter) child(c *FoldChild, l *foldLane) {
	w.open('{')
	w.str("child_id", c.ID)
	w.str("parent_id", c.Parent)
	w.str("prompt", c.Prompt)
	w.raw("tools_allowed", c.Tools)
	w.seq("spawn_seq", c.Spawned)
	w.str("state", string(c.State))
	w.str("reason", c.Reason)
	w.seq("state_seq", c.StateSeq)
	w.borders(l, c.State, c.StateSeq)
	w.close('}')
}

// borders writes where the newest turn of a lane has started, where one has, and its newest final state, unless the
// lane's state says it.
func (w *snapshotWriter) borders(l *foldLane, state RunState, since Seq) {
	if l == nil {
		return
	}
	if l.turn > 0 {
		w.int("turn_seq", int64(l.turn))
	}
	if l.final > 0 && (l.final != since || !state.Final()) {
		w.int("final_seq", int64(l.final))
	}
}

// writeStarts writes the starts of messages that have ended, which are repeats unless something comes for them.
func (w *snapshotWriter) writeStarts(f *Fold) {
	some := false
	for l, m := range f.starts.All() {
		if f.again(l, "") == nil {
			continue
		}
		if !some {
			w.list("starts")
			some = true
		}
		w.open('{')
		w.str("message_id", m.ID)
		w.str("child_id", m.Child)
		w.str("role", m.Role)
		w.str("model", m.Model)
		w.seq("start_seq", m.Start)
		w.raw("usage", m.Usage)
		w.close('}')
	}
	if some {
		w.close(']')
	}
}

func (w *snapshotWriter) usage(u *FoldUsage) {
	w.name("usage")
	w.open('{')
	w.writeCounts("total", &u.Total)
	w.name("by_model")
	w.open('{')
	for _, m := range u.models {
		w.writeCounts(m.model, &m.count)
	}
	w.close('}')
	w.close('}')
}

// writeCounts writes a usage as a member of a name.
func (w *snapshotWriter) writeCounts(name string, u *UsageCount) {
	w.name(name)
	w.open('{')
	for _, n := range u.names {
		w.int(n, u.sums[n])
	}
	w.close('}')
}

func (w *snapshotWriter) input(in *FoldInput) {
	w.open('{')
	w.str("request_id", in.ID)
	w.str("child_id", in.Child)
	w.str("prompt", in.Prompt)
	w.raw("options", in.Options)
	w.raw("schema", in.Schema)
	switch {
	case in.Open():
		w.str("state", "open")
	case in.Answered != 0:
		w.str("state", "answered")
	default:
		w.str("state", "ended")
	}
	w.raw("answer", in.Answer)
	w.seq("seq", in.Seq)
	w.seq("answered_seq", in.Answered)
	w.seq("ended_seq", in.Ended)
	w.close('}')
}

func (w *snapshotWriter) wait(a *Ask) {
	w.open('{')
	w.str("request_id", a.Request)
	w.str("call_id", a.Call)
	w.str("child_id", a.Child)
	w.seq("seq", a.Seq)
	w.bool("cancelling", a.Told)
	w.bool("turn_ended", a.Idle)
	w.close('}')
}

func (w *snapshotWriter) command(c *FoldCommand) {
	w.open('{')
	w.str("command", c.Name)
	w.str("child_id", c.Child)
	w.seq("seq", c.Seq)
	w.str("actor", c.Actor)
	w.raw("payload", c.Payload)
	w.close('}')
}
