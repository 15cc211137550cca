package langgraph

import (
	"cmp"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// turns are the runs of LangGraph in the thread: stretches of it, one at a time.
type turns struct {
	run     graphRun
	waiting waiting   // messages that nobody has taken
	takes   bool      // the agent says which commands it has taken
	last    string    // the newest terminal; "" before the first
	graph   string    // name of the agent
	close   string    // why the run ends with the record at hand: a terminal; "" when it does not
	why     string    // what failed
	over    []Stretch // runs that have ended; only appended to: copies share it
	session []byte    // as schema.MergeSession has it; never changed
	deleted bool
}

// graphRun is the run under way, or the newest.
type graphRun struct {
	id        string // "" before the first
	begin     schema.Seq
	active    bool // it has begun and has no terminal
	running   bool // its start was emitted
	asked     bool // a command has begun it
	taken     bool // and the agent has dealt with that
	over      bool // its turn has ended, or it was cancelled before one began
	cancelled bool // a client has commanded its end
	stop      string
	reason    string // of the newest turn.end
}

// waiting are messages that nobody has taken, by their seqs.
type waiting struct {
	own      []schema.Seq // they ask for a run of their own
	injected []schema.Seq // into the run under way
}

func (w *waiting) len() int { return len(w.own) + len(w.injected) }

func (w *waiting) add(seq schema.Seq, own bool) {
	if own {
		w.own = append(w.own, seq)
	} else {
		w.injected = append(w.injected, seq)
	}
}

// nextOwn reports whether the oldest of them asks for a run of its own.
func (w *waiting) nextOwn() bool {
	return len(w.own) > 0 && (len(w.injected) == 0 || w.own[0] < w.injected[0])
}

// shift removes the oldest and returns its seq. There must be one.
func (w *waiting) shift() (seq schema.Seq) {
	from := &w.injected
	if w.nextOwn() {
		from = &w.own
	}
	seq, *from = (*from)[0], (*from)[1:]
	return seq
}

// forget removes those up to a seq that were injected.
func (w *waiting) forget(through schema.Seq) {
	for len(w.injected) > 0 && w.injected[0] <= through {
		w.injected = w.injected[1:]
	}
}

func (w *waiting) clone() waiting {
	return waiting{slices.Clone(w.own), slices.Clone(w.injected)}
}

// maxWaiting bounds them. Those beyond it are taken for injected and answered.
const maxWaiting = 1 << 12

// The terminals.
const (
	completed   = "completed"
	failed      = "failed"
	interrupted = "interrupted"
)

func (t *turns) clone() turns {
	c := *t
	c.waiting, c.over = t.waiting.clone(), slices.Clip(t.over)
	return c
}

func (t *turns) size() int { return 16*t.waiting.len() + 120*len(t.over) + len(t.session) + 256 }

// Types that the schema has no names for.
const (
	typeCancel = "command.cancel"
	typeAnswer = "command.answer"
)

// openRun begins a run with a record.
func (p *Projector) openRun(seq schema.Seq, asked bool) {
	p.run = graphRun{id: RunID(p.thread, seq), begin: seq, active: true, asked: asked}
}

// Alone reports whether the payload of a message asks for a run of its own: it names what becomes of the one that is
// under way.
func Alone(message []byte) bool {
	return text(schema.Field(message, "multitask_strategy")) != ""
}

// readCommand reads what clients command, before anything else of the record is emitted.
func (p *Projector) readCommand() {
	if p.rec.child != "" {
		return
	}
	switch {
	case p.is(schema.TypeCommandMessage) && !schema.OfSystem(p.rec.payload):
		if !p.run.active {
			p.openRun(p.rec.seq, true)
		} else if p.waiting.len() < maxWaiting {
			p.waiting.add(p.rec.seq, Alone(p.rec.payload))
		}
	case p.is(typeAnswer) && !p.run.active:
		p.openRun(p.rec.seq, true)
	case p.is(typeCancel): // what came before it is not answered
		for _, seq := range p.waiting.own {
			id := RunID(p.thread, seq)
			p.noteEnd(id, seq, interrupted, "")
			p.endDropped(id)
		}
		p.waiting = waiting{}
		p.run.over, p.run.stop, p.run.reason = true, "cancelled", text(p.field("reason"))
		p.run.cancelled = true
	}
}

// noteWork notes that the agent does something: a run is under way, which begins with it if no client has asked
// for it.
func (p *Projector) noteWork(t *assemble.Transition) {
	if t.Kind == assemble.InputAnswer || t.Kind == assemble.CallEnd && t.Repaired {
		return
	}
	p.startRun()
}

// startRun notes that a run is under way, and shows it once.
func (p *Projector) startRun() {
	if !p.run.active {
		p.openRun(p.rec.seq, false)
	}
	if !p.run.running {
		p.run.running = true
		slot := slotBegins
		if p.is(schema.TypeRunLifecycle) && p.rec.own != nil {
			slot = slotSays
		}
		p.root("running", slot, nil)
	}
}

// root appends what becomes of the run.
func (p *Projector) root(event string, slot int, more func(object) object) {
	if slot != slotBegins && text(schema.Field(p.rec.own, "event")) != event {
		p.rec.own = nil
	}
	p.emit(lifecycle, "lifecycle", source{namespace: []byte("[]")}, slot, func(o object) object {
		o = o.Str("event", event).OptStr("graph_name", p.graph)
		if more != nil {
			o = more(o)
		}
		return o
	})
}

func (p *Projector) turnEnds(t *assemble.Transition) {
	if t.Lane.Child != "" || t.Repaired {
		return
	}
	p.run.over, p.run.stop, p.run.reason = true, text(p.field("stop_reason")), text(p.field("reason"))
	if p.asking() && outcomeOf(p.run.stop) == completed {
		p.close = interrupted
	}
}

// outcomeOf is the terminal that a stop reason stands for. A run that was cancelled is interrupted, as in LangGraph.
func outcomeOf(stop string) string {
	switch s := strings.ToLower(stop); {
	case strings.Contains(s, "cancel"), strings.Contains(s, "abort"), s == interrupted:
		return interrupted
	case strings.Contains(s, "error"), strings.Contains(s, "fail"):
		return failed
	}
	return completed
}

// readState reads the state of a lane.
func (p *Projector) readState(t *assemble.Transition) {
	if t.Value == nil || schemaYes(t.Value, "session") {
		return // a message has made it go on, or it was opened to be changed
	}
	s, err := schema.ParseLifecycle(t.Value)
	switch {
	case err != nil:
	case t.Lane.Child != "":
		if !s.State.Final() {
			p.startRun()
		}
		p.showScope(p.lane(t.Lane.Child))
	case s.State.Final():
		p.close = endOf(s.State)
		if p.why = ""; s.Reason != nil {
			p.why = *s.Reason
		}
	case s.State == schema.StateAwaitingApproval || s.State == schema.StatePaused:
		p.startRun()
		if p.asking() {
			p.close = interrupted
		}
	default:
		p.startRun()
	}
}

func schemaYes(object []byte, name string) bool { return string(schema.Field(object, name)) == "true" }

func endOf(s schema.RunState) string {
	switch s {
	case schema.StateError:
		return failed
	case schema.StateAborted:
		return interrupted
	}
	return completed
}

// readTaken reads which commands the agent has dealt with.
func (p *Projector) readTaken() {
	n, ok := jsonscan.WholeNumber(p.field("through"))
	if !ok || p.rec.child != "" {
		return
	}
	p.takes = true
	p.waiting.forget(schema.Seq(n))
	p.run.taken = p.run.taken || p.run.begin <= schema.Seq(n)
}

// isDone reports whether the run that was asked for is at its end: its command was dealt with and its turn has
// ended, in whatever order the agent says so.
func (p *Projector) isDone() bool {
	root := p.reading.Lane("")
	return p.run.active && p.run.asked && p.run.taken && p.run.over && !root.InTurn && root.Message == nil
}

// settle ends the run, behind all else of the record that ends it. One that has requests open waits for their answers;
// one into which messages were injected that the agent will take goes on.
func (p *Projector) settle() {
	if p.close == "" && p.isDone() {
		p.close, p.why = outcomeOf(p.run.stop), p.run.reason
	}
	how := p.close
	p.close = ""
	if how == "" || !p.run.active || !p.run.running && !p.run.asked {
		return
	}
	if how == completed {
		if p.asking() {
			how = interrupted
		} else if p.takes && p.waiting.len() > 0 && !p.waiting.nextOwn() {
			return
		}
	}
	why := ""
	if how == failed {
		why = cmp.Or(p.why, p.run.reason, "the run failed")
	}
	p.root(how, slotLast, func(o object) object {
		if how == failed {
			o = o.Str("error", why)
		} else if how == interrupted && !p.asking() {
			o = o.OptStr("reason", cmp.Or(p.why, p.run.reason))
		}
		if p.checkpoint.id != "" {
			o = append(append(o.Name("checkpoint"), '{').Str("id", p.checkpoint.id), '}')
		}
		return o
	})
	p.noteEnd(p.run.id, p.run.begin, how, why)
	p.last, p.why, p.run.active = how, "", false
	if p.waiting.len() > 0 {
		p.openRun(p.waiting.shift(), true)
	}
}

// IsCancelled reports whether the run under way was told to end and has not ended yet.
func (p *Projector) IsCancelled() bool { return p.run.active && p.run.cancelled }

// asking reports whether a request for input waits for an answer.
func (p *Projector) asking() bool { return p.reading.Questions().Requests() > 0 }

// isWaiting reports whether a request for input waits for an answer. One that a client has answered does not,
// even before its agent has said so.
func (p *Projector) isWaiting(key requestKey) bool {
	return p.reading.Questions().Request(key.lane, key.id)
}

// childBegins appends that a child has started, and why.
func (p *Projector) childBegins(t *assemble.Transition) {
	p.startRun()
	call, name, graph := "", "", ""
	if p.is(schema.TypeChildSpawn) && text(p.field("child_id")) == t.Lane.Child {
		call, name = text(p.field("call_id")), text(p.field("name"))
		graph = name
	}
	p.lane("") // so that the map may be changed
	l := p.lanes[t.Lane.Child]
	if l == nil {
		l = p.below(t.Lane.Child, t.Lane.Parent, call, name)
	} else {
		l = p.lane(t.Lane.Child)
	}
	if l.silent = p.field("namespace") != nil; l.silent {
		p.setNamespace(l)
		return
	}
	p.emit(lifecycle, "lifecycle", source{lane: laneOf(nil, l.segments), namespace: l.namespace}, slotOf(t, slotBegins),
		func(o object) object {
			o = o.Str("event", "started").OptStr("graph_name", graph)
			if l.call != "" {
				o = append(o.Name("cause"), '{').Str("type", "toolCall").Str("tool_call_id", l.call).End()
			}
			return o
		})
}

func (p *Projector) childEnds(t *assemble.Transition) {
	l := p.lane(t.Lane.Child)
	how, reason := completed, ""
	if l.silent {
		l.open = nil
		return
	}
	if s, err := schema.ParseLifecycle(p.rec.payload); err == nil && p.is(schema.TypeRunLifecycle) {
		if how = endOf(s.State); s.Reason != nil {
			reason = *s.Reason
		}
	}
	p.emit(lifecycle, "lifecycle", source{lane: laneOf(nil, l.segments), namespace: l.namespace}, slotOf(t, slotEnds),
		func(o object) object {
			o = o.Str("event", how)
			if how == failed {
				o = o.Str("error", cmp.Or(reason, "the agent failed"))
			}
			return o
		})
	if l.open = nil; p.reading.Lane(t.Lane.Child) == nil { // too many are known
		p.forget(l)
	}
}
