package otlp

import (
	"cmp"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// RunPrefix is what the ids of runs of traces begin with; the id of the trace follows.
const RunPrefix = "otel_"

// Translator makes the events of one trace's run. Spans come in rounds: all that are there when the trace seems to be
// complete, and later those that were late.
type Translator struct {
	run   string
	spans map[string]*treeSpan   // all so far
	lanes map[string]*agentLane  // by the id of the child; "" is the run itself
	calls map[string]bool        // of tools, that were begun
	ids   map[string]bool        // of messages
	told  map[string][]*treeSpan // model calls by the ids of their answers
	logs  map[string][]*Record   // records of spans that have not come, by the ids of these
	round int
	top   *treeSpan // the agent that the run itself is; nil: none yet
	root  Span      // how the run ends, by all rounds so far
	out   []schema.Event
}

// treeSpan is a span in its tree.
type treeSpan struct {
	*Span
	kind       spanKind
	parent     *treeSpan
	children   []*treeSpan
	start, end uint64 // within those of the parent, whatever the clocks say
	lane       *agentLane
	exchange   *exchange // of a model
	tool       spanCall  // of a tool
	wrapper    bool      // another span is the same model call, and tells more of it
	round      int       // in which it came
}

// NewTranslator returns the translator of a run.
func NewTranslator(run string) *Translator {
	t := &Translator{run: run, spans: map[string]*treeSpan{}, lanes: map[string]*agentLane{}, calls: map[string]bool{},
		ids: map[string]bool{}, told: map[string][]*treeSpan{}, logs: map[string][]*Record{}}
	t.lanes[""] = newLane("", nil)
	return t
}

// Round returns the events of spans and of log records of spans that have come since the last round. The last of them
// ends the run, which is to be running before the first. Spans that were there before are passed over.
func (t *Translator) Round(spans []*Span, records []*Record) []schema.Event {
	t.round++
	late := t.attach(records)
	fresh := t.adopt(spans)
	t.out = nil
	t.lanes[""].open = true
	for _, at := range t.timeline(fresh) {
		if at.end {
			t.finish(at.span)
		} else {
			t.start(at.span)
		}
	}
	for _, s := range late {
		t.tellLate(s)
	}
	t.close(fresh)
	return t.out
}

// adopt takes new spans into the tree, in an order that does not depend on how they came, and returns them.
func (t *Translator) adopt(spans []*Span) (fresh []*treeSpan) {
	for _, s := range spans {
		if t.spans[s.ID] != nil {
			continue
		}
		one := &treeSpan{Span: s, kind: kindOf(s), start: s.Start, end: s.End, round: t.round}
		t.spans[s.ID] = one
		t.readLogs(one)
		fresh = append(fresh, one)
	}
	slices.SortFunc(fresh, func(a, b *treeSpan) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
	})
	for _, s := range fresh {
		if up := t.spans[s.Parent]; up != nil && !isAbove(s, up) {
			s.parent = up
			up.children = append(up.children, s)
		}
	}
	for _, s := range fresh {
		switch s.kind {
		case chatSpan:
			s.exchange = exchangeOf(s.Span)
			s.markWrappers()
		case toolSpan:
			s.tool = toolCallOf(s.Span)
		}
	}
	for _, s := range fresh {
		if s.kind == chatSpan && !s.wrapper && s.exchange.response != "" {
			t.compare(s)
		}
	}
	t.chooseTop(fresh)
	return fresh
}

// markWrappers notes the model calls within which a model call is, up to the agent or the tool that makes it.
func (s *treeSpan) markWrappers() {
	for up := s.parent; up != nil && up.kind != agentSpan && up.kind != toolSpan; up = up.parent {
		if up.kind == chatSpan {
			up.wrapper = true
		}
	}
}

// compare looks for another span of the same model call: a client library and what instruments it may both write one,
// side by side. They have the same answer at the same time; the one with more messages counts, or what was told before.
func (t *Translator) compare(s *treeSpan) {
	same := t.told[s.exchange.response]
	t.told[s.exchange.response] = append(same, s)
	for _, o := range same {
		if o.wrapper || o.Start > s.End || s.Start > o.End {
			continue
		}
		if o.round == s.round && o.exchange.size() < s.exchange.size() {
			o.wrapper = true
			continue
		}
		s.wrapper = true
	}
}

// isAbove reports whether a span is above another one: spans may name each other as parents.
func isAbove(s, other *treeSpan) bool {
	for up := other; up != nil; up = up.parent {
		if up == s {
			return true
		}
	}
	return false
}

// chooseTop finds the agent that the run itself is: the only one that is in no other. Where there are several, all are
// children.
func (t *Translator) chooseTop(fresh []*treeSpan) {
	if t.top != nil || len(t.lanes) > 1 {
		return
	}
	var tops []*treeSpan
	for _, s := range fresh {
		if s.kind == agentSpan && s.agentAbove() == nil {
			tops = append(tops, s)
		}
	}
	if len(tops) == 1 {
		t.top = tops[0]
	}
}

// agentAbove returns the agent within which a span is; nil when there is none.
func (s *treeSpan) agentAbove() *treeSpan {
	for up := s.parent; up != nil; up = up.parent {
		if up.kind == agentSpan {
			return up
		}
	}
	return nil
}

// moment is the beginning or the end of a span.
type moment struct {
	at   uint64
	span *treeSpan
	end  bool
}

// timeline returns the moments of spans in their order. Clocks of several machines differ, so a span begins after its
// parent, and ends before that; a tool begins after the message that asks for it.
func (t *Translator) timeline(fresh []*treeSpan) (all []moment) {
	isFresh := make(map[*treeSpan]bool, len(fresh))
	asked := make(map[string]*treeSpan)
	for _, s := range fresh {
		isFresh[s] = true
		for _, id := range s.asksFor() {
			if asked[id] == nil {
				asked[id] = s
			}
		}
	}
	var walk func(s *treeSpan)
	walk = func(s *treeSpan) {
		if s.parent != nil {
			s.start = max(s.start, s.parent.start)
		}
		if s.kind == toolSpan {
			if by := asked[s.tool.id]; by != nil {
				s.start = max(s.start, by.Start+1)
			}
		}
		s.end = max(s.end, s.start)
		all = append(all, moment{at: s.start, span: s})
		for _, c := range s.children {
			if isFresh[c] {
				walk(c)
				s.end = max(s.end, c.end)
			}
		}
		all = append(all, moment{at: s.end, span: s, end: true})
	}
	for _, s := range fresh {
		if s.parent == nil || !isFresh[s.parent] {
			walk(s)
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return all
}

// asksFor returns the ids of the calls that a model has asked for.
func (s *treeSpan) asksFor() (ids []string) {
	if s.exchange == nil || s.wrapper {
		return nil
	}
	for _, m := range s.exchange.output {
		for _, p := range m.parts {
			if p.kind == callPart && p.id != "" {
				ids = append(ids, p.id)
			}
		}
	}
	return ids
}

// start emits what begins with a span.
func (t *Translator) start(s *treeSpan) {
	s.lane = t.laneOf(s)
	switch s.kind {
	case agentSpan:
		if s != t.top {
			t.spawn(s)
		}
	case chatSpan:
		if !s.wrapper {
			t.modelCall(s)
		}
	case toolSpan:
		t.startTool(s)
	}
}

// finish emits what ends with a span.
func (t *Translator) finish(s *treeSpan) {
	switch {
	case s.kind == toolSpan:
		t.finishTool(s)
	case s.kind == agentSpan && s != t.top:
		t.endLane(t.lanes[t.childID(s)], s.Span)
	}
}

// close ends what is open, and the run.
func (t *Translator) close(fresh []*treeSpan) {
	root := &t.root
	for _, s := range fresh {
		root.End = max(root.End, s.end)
		if s.Parent == "" || s == t.top {
			root.Failed, root.Message = root.Failed || s.Failed, cmp.Or(root.Message, s.Message)
		}
	}
	for _, id := range t.openChildren() {
		t.endLane(t.lanes[id], &Span{End: root.End})
	}
	t.endLane(t.lanes[""], root)
}

// openChildren returns the ids of the children that have not ended, the innermost first.
func (t *Translator) openChildren() (ids []string) {
	for id, l := range t.lanes {
		if id != "" && l.open {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(t.lanes[b].path), len(t.lanes[a].path)), cmp.Compare(a, b))
	})
	return ids
}

// emit adds events of a lane, at a time.
func (t *Translator) emit(at uint64, events ...schema.Event) {
	ts := timeOf(at)
	for i := range events {
		events[i].TS = ts
	}
	t.out = append(t.out, events...)
}

// write adds one event of a lane.
func (t *Translator) write(l *agentLane, at uint64, typ string, payload provider.Fields) {
	w := l.writer("otel", "")
	w.Add(typ, payload)
	t.emit(at, w.Drain()...)
}
