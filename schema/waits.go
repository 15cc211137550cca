package schema

import (
	"cmp"
	"maps"
	"slices"

	"agentstream/schema/ordered"
)

// Waits is what waits in a run for somebody: the questions of its events, read in the order of the log, that nothing
// has ended yet. It is the one place that says whether an answer is waited for; lists, commands, snapshots and all
// protocols ask it.
//
// A question begins with input.requested, and with a tool.start that asks for permission or is the client's to carry
// out. It ends with its answer (command.answer, input.answered), with the end of its call, with the end of its turn
// when that was cancelled or has failed, with its child's final state, and with that of the run, so that a run which
// begins anew has none. A command.cancel of its lane, or of the whole run, ends it as well: with the end of the turn,
// whatever that says, or at once when the turn has ended. One that comes again while it waits is the same question. One
// that comes again after its end and says the same is none, until its lane has another turn or state, or a person has
// said something; a call's, until a message begins.
//
// The zero Waits is that of a run without events. It may be used by one goroutine at a time. An event costs the same,
// however many questions wait.
type Waits struct {
	requests map[laneKey]*Ask   // by the lane and the request's id
	named    map[string][]*Ask  // by the request's id, in whatever lane
	calls    map[laneKey][]*Ask // that are about a call, by its lane and id: what the call asks itself has no request
	lanes    map[string]*laneAsks
	alert    ordered.Map[string, *laneAsks] // those that a command.cancel changes: a question is fresh or idle
	past     map[string]*pastAsks           // of each lane, what has ended and is not asked again
	pasts    int
	started  map[laneKey]uint32  // what the newest start of a call says that has not ended, as Ask.Said
	states   map[string]RunState // of lanes
	n        int
}

// pastAsks are the ids of requests and of calls that have ended, each with what it said, as Ask.Said.
type pastAsks struct{ requests, calls map[string]uint32 }

// has reports whether a question says what one said that has ended. What nobody knows of one is what comes late.
func (p *pastAsks) has(a *Ask) bool {
	if p == nil {
		return false
	}
	said, ok := p.requests[a.Request]
	if a.Request == "" {
		said, ok = p.calls[a.Call]
	}
	return ok && (said == 0 || said == a.Said)
}

// maxPast bounds what is remembered of a run. When it is more, all is forgotten.
const maxPast = 1 << 10

// laneAsks are the questions of a lane.
type laneAsks struct {
	fresh, told, idle ordered.Map[*Ask, struct{}] // those of neither kind, Ask.Told, Ask.Idle
}

func (l *laneAsks) len() int { return l.fresh.Len() + l.told.Len() + l.idle.Len() }

// list returns the questions of a lane.
func (l *laneAsks) list() []*Ask {
	return slices.Concat(keys(&l.fresh), keys(&l.told), keys(&l.idle))
}

func keys(m *ordered.Map[*Ask, struct{}]) []*Ask {
	list := make([]*Ask, 0, m.Len())
	for a := range m.All() {
		list = append(list, a)
	}
	return list
}

// set returns where a question of the lane is.
func (l *laneAsks) set(a *Ask) *ordered.Map[*Ask, struct{}] {
	switch {
	case a.Told:
		return &l.told
	case a.Idle:
		return &l.idle
	}
	return &l.fresh
}

// laneKey is a request or a call of a lane.
type laneKey struct{ child, id string }

// Apply reads the next event. It returns the questions that the event has ended, oldest first, and whether the
// event is a new question itself.
func (w *Waits) Apply(e *AskEvent) (ended []Ask, asked bool) {
	again := e.state != "" && w.states[e.Child] == e.state
	if e.state != "" {
		defer w.setState(e.Child, e.state)
	}
	switch e.kind {
	case asks:
		if e.Request == "" {
			w.start(e.Child, e.Call, e.Said)
		}
		return w.ask(e.Ask)
	case starts:
		w.start(e.Child, e.Call, e.Said)
	case answers:
		found := w.find(e.Child, e.Request)
		ended = w.endAll(found)
		if len(found) == 0 && e.agent { // its question is missing, or late
			w.remember(Ask{Child: e.Child, Request: e.Request})
		}
	case endsCall:
		key := laneKey{e.Child, e.Call}
		w.remember(Ask{Child: e.Child, Call: e.Call, Said: w.started[key]})
		delete(w.started, key)
		ended = w.endAll(slices.Clone(w.calls[laneKey{e.Child, e.Call}]))
	case endsTurn:
		ended = w.turnOver(e.Child)
	case endsLane:
		if l := w.lanes[e.Child]; l != nil {
			ended = w.endAll(l.list())
		}
	case speaks:
		if p := w.past[e.Child]; p != nil {
			w.pasts -= len(p.calls)
			p.calls = emptyOf(p.calls)
		}
	case turns:
		if !again {
			w.forget(e.Child)
		}
	case endsRun:
		ended, *w = w.Open(), Waits{states: w.states}
	case cancelsLane:
		ended = w.cancel(e.Child)
	case cancelsRun:
		for child := range w.alert.All() {
			ended = append(ended, w.cancel(child)...)
		}
		sortAsks(ended)
	}
	return ended, false
}

// turnOver ends the questions of a lane that was told to cancel. The others wait on.
func (w *Waits) turnOver(child string) []Ask {
	l := w.lanes[child]
	if l == nil {
		return nil
	}
	for a := range l.fresh.All() {
		a.Idle = true
		l.idle.Set(a, struct{}{})
	}
	l.fresh = ordered.Map[*Ask, struct{}]{}
	return w.endAll(keys(&l.told))
}

// cancel ends the questions of a lane whose turn is over. The others wait until it is.
func (w *Waits) cancel(child string) []Ask {
	l := w.lanes[child]
	if l == nil {
		return nil
	}
	w.alert.Delete(child)
	for a := range l.fresh.All() {
		a.Told = true
		l.told.Set(a, struct{}{})
	}
	l.fresh = ordered.Map[*Ask, struct{}]{}
	return w.endAll(keys(&l.idle))
}

// setState notes the state of a lane. A final one need not be known: what comes after it is another one.
func (w *Waits) setState(child string, state RunState) {
	if state.Final() {
		delete(w.states, child)
		return
	}
	if w.states == nil {
		w.states = make(map[string]RunState)
	}
	w.states[child] = state
}

func (w *Waits) ask(a Ask) (ended []Ask, asked bool) {
	switch {
	case a.Request == "" && w.Call(a.Child, a.Call):
		return nil, false // it asks already, or a request about it does
	case a.Request != "" && w.Request(a.Child, a.Request):
		return nil, false
	}
	if w.past[a.Child].has(&a) {
		return nil, false
	}
	if was := w.own(a.Child, a.Call); was != nil { // the request takes the place of what the call asks
		ended = w.endAll([]*Ask{was})
	}
	w.add(a)
	return ended, true
}

// own returns what a call asks itself; nil when it does not.
func (w *Waits) own(child, call string) *Ask {
	for _, a := range w.calls[laneKey{child, call}] {
		if a.Request == "" {
			return a
		}
	}
	return nil
}

func (w *Waits) add(of Ask) {
	a := &of
	if w.lanes == nil {
		w.requests, w.named = make(map[laneKey]*Ask), make(map[string][]*Ask)
		w.calls, w.lanes = make(map[laneKey][]*Ask), make(map[string]*laneAsks)
	}
	w.n++
	if a.Request != "" {
		w.requests[laneKey{a.Child, a.Request}] = a
		w.named[a.Request] = append(w.named[a.Request], a)
	}
	if key := (laneKey{a.Child, a.Call}); a.Call != "" {
		w.calls[key] = append(w.calls[key], a)
	}
	l := w.lanes[a.Child]
	if l == nil {
		l = new(laneAsks)
		w.lanes[a.Child] = l
	}
	l.set(a).Set(a, struct{}{})
	if !a.Told {
		w.alert.Set(a.Child, l)
	}
}

// endAll removes questions, and returns them.
func (w *Waits) endAll(which []*Ask) (ended []Ask) {
	for _, a := range which {
		ended = append(ended, *a)
		w.remember(*a)
		w.n--
		if a.Request != "" {
			delete(w.requests, laneKey{a.Child, a.Request})
			drop(w.named, a.Request, a)
		}
		if a.Call != "" {
			drop(w.calls, laneKey{a.Child, a.Call}, a)
		}
		l := w.lanes[a.Child]
		l.set(a).Delete(a)
		if l.fresh.Len()+l.idle.Len() == 0 {
			w.alert.Delete(a.Child)
		}
		if l.len() == 0 {
			delete(w.lanes, a.Child)
		}
	}
	sortAsks(ended)
	return ended
}

// start notes what the start of a call says. One that has ended and said something else may be asked about again.
func (w *Waits) start(child, call string, said uint32) {
	if len(w.started) >= maxPast || w.started == nil {
		w.started = make(map[laneKey]uint32)
	}
	w.started[laneKey{child, call}] = said
	p := w.past[child]
	if p == nil {
		return
	}
	before, ok := p.calls[call]
	switch {
	case ok && before == 0: // it is late
		p.calls[call] = said
	case ok && before != said:
		delete(p.calls, call)
		w.pasts--
	}
}

// remember notes what has ended, a request or else a call: that it is asked once more, without anything of the
// agent's between, is a repeat.
func (w *Waits) remember(a Ask) {
	if w.pasts >= maxPast {
		w.past, w.pasts = nil, 0
	}
	if w.past == nil {
		w.past = make(map[string]*pastAsks)
	}
	p := w.past[a.Child]
	if p == nil {
		p = new(pastAsks)
		w.past[a.Child] = p
	}
	set, id := &p.requests, a.Request
	if id == "" {
		set, id = &p.calls, a.Call
	}
	if *set == nil {
		*set = make(map[string]uint32)
	}
	before, known := (*set)[id]
	(*set)[id] = cmp.Or(a.Said, before)
	if !known {
		w.pasts++
	}
}

func (w *Waits) forget(child string) {
	p := w.past[child]
	if p == nil {
		return
	}
	w.pasts -= len(p.requests) + len(p.calls)
	if child != "" { // of which there may be many
		delete(w.past, child)
		return
	}
	p.requests, p.calls = emptyOf(p.requests), emptyOf(p.calls)
}

// emptyOf returns a map without entries: m, unless that is large. It is filled again soon.
func emptyOf(m map[string]uint32) map[string]uint32 {
	if len(m) > 16 {
		return nil
	}
	clear(m)
	return m
}

// listPast returns what has ended and is not asked again.
func (w *Waits) listPast() (list []Ask) {
	for child, past := range w.past {
		for id, said := range past.requests {
			list = append(list, Ask{Child: child, Request: id, Said: said})
		}
		for id, said := range past.calls {
			list = append(list, Ask{Child: child, Call: id, Said: said})
		}
	}
	slices.SortFunc(list, func(x, y Ask) int {
		return cmp.Or(cmp.Compare(x.Child, y.Child), cmp.Compare(x.Request, y.Request), cmp.Compare(x.Call, y.Call))
	})
	return list
}

func drop[K comparable](index map[K][]*Ask, key K, a *Ask) {
	list := slices.DeleteFunc(index[key], func(b *Ask) bool { return a == b })
	if index[key] = list; len(list) == 0 {
		delete(index, key)
	}
}

func sortAsks(list []Ask) {
	slices.SortFunc(list, func(x, y Ask) int { return cmp.Compare(x.Seq, y.Seq) })
}

// find returns the questions that an answer in a lane names: the request of that id in the lane, and those that are
// about the lane's call of that id. Where there is neither, the requests of that id in other lanes: clients need not
// know who asks.
func (w *Waits) find(child, id string) []*Ask {
	found := slices.Clone(w.calls[laneKey{child, id}])
	if a := w.requests[laneKey{child, id}]; a != nil && !slices.Contains(found, a) {
		found = append(found, a)
	}
	if len(found) == 0 {
		return slices.Clone(w.named[id])
	}
	return found
}

// For reports whether an answer in a lane to a request or a call is waited for, and returns the oldest question that
// it names.
func (w *Waits) For(child, id string) (a Ask, ok bool) {
	if id = askID(id); id == "" {
		return a, false
	}
	for _, found := range w.find(child, id) {
		if !ok || found.Seq < a.Seq {
			a, ok = *found, true
		}
	}
	return a, ok
}

// Request reports whether a lane's request for input waits.
func (w *Waits) Request(child, id string) bool { return w.requests[laneKey{child, askID(id)}] != nil }

// Call reports whether a lane's call waits: it asks itself, or a request about it does.
func (w *Waits) Call(child, id string) bool { return len(w.calls[laneKey{child, askID(id)}]) > 0 }

// isWaiting reports whether a question waits whose lane was not told to cancel.
func (w *Waits) isWaiting() bool {
	return w.alert.Len() > 0
}

// Requests returns how many requests for input wait.
func (w *Waits) Requests() int { return len(w.requests) }

// Len returns how many questions wait.
func (w *Waits) Len() int { return w.n }

// Of returns how many questions of a lane wait.
func (w *Waits) Of(child string) int {
	if l := w.lanes[child]; l != nil {
		return l.len()
	}
	return 0
}

// Open returns the questions that wait, oldest first.
func (w *Waits) Open() []Ask {
	list := make([]Ask, 0, w.n)
	for _, l := range w.lanes {
		for _, a := range l.list() {
			list = append(list, *a)
		}
	}
	sortAsks(list)
	return list
}

// Clone returns a copy. Its cost grows with what waits.
func (w *Waits) Clone() *Waits {
	c := &Waits{pasts: w.pasts, started: cloneOf(w.started), states: cloneOf(w.states)}
	for _, a := range w.Open() {
		c.add(a)
	}
	for child, past := range w.past {
		if len(past.requests)+len(past.calls) == 0 {
			continue
		}
		if c.past == nil {
			c.past = make(map[string]*pastAsks, len(w.past))
		}
		c.past[child] = &pastAsks{cloneOf(past.requests), cloneOf(past.calls)}
	}
	return c
}

// cloneOf returns a copy of a map, nil where it is empty: most are.
func cloneOf[K comparable, V any](m map[K]V) map[K]V {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
