package assemble

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// Lane is what is known of the run itself or of one child.
type Lane struct {
	Child   string // id of the child; "" is the run itself
	Parent  string // child above it; "" is the run itself
	Path    []string
	State   schema.RunState
	InTurn  bool
	Turn    string   // id of the open turn; "" when it has none
	Message *Message // the open message; nil when there is none

	items ordered.Map[itemKey, *Item]    // what else is open, in the order of its beginning
	asks  ordered.Map[itemKey, struct{}] // those of items that the end of a turn ends
	gone  jsonscan.Sum                   // key of the message that Cut has ended; zero when there is none
	held  *Message                       // of a message.start whose id has ended: a repeat, unless something comes for it
	outer string                         // turn that the open one, a repeat perhaps, has ended: its end ends this
	past  ordered.Map[itemKey, past]     // what has ended, the newest last
	heard schema.Seq                     // where a person has said something, or a turn has started, the newest
	own   schema.RunState                // of its own newest run.lifecycle
	since schema.Seq                     // where it has become that
	order int                            // number of lanes that were known before
	depth int
	live  bool         // it is in Run.live
	by    *atomic.Bool // of the Run that may change it
}

const (
	// maxLanes bounds the lanes that are known at a time.
	maxLanes = 1 << 14
	// maxDepth bounds how deep children are nested.
	maxDepth = 32
	// maxID bounds an id that things are known by, in bytes.
	maxID = 1 << 10
)

// clone returns a copy that its owner may change.
func (l *Lane) clone(by *atomic.Bool) *Lane {
	c := *l
	c.by, c.items, c.asks = by, l.items.Clone(), l.asks.Clone()
	c.past = l.past.Clone()
	if l.Message != nil {
		c.Message = l.Message.clone()
	}
	if l.held != nil {
		c.held = l.held.clone()
	}
	return &c
}

// reuseSeq returns where ids of the lane may be used again: where a person has said something, a turn has
// started, or its state has changed.
func (l *Lane) reuseSeq() schema.Seq {
	if l.own.Final() {
		return l.heard
	}
	return max(l.heard, l.since)
}

// setState notes the state that an event of the lane itself has set. A message.start from before is not held any
// longer: a final state later does not bring it back.
func (l *Lane) setState(state schema.RunState, at schema.Seq) {
	if l.own != state {
		l.own, l.since = state, at
	}
	if l.again(nil) == nil {
		l.held = nil
	}
}

// Since returns where the newest run.lifecycle of the lane itself has changed its state; 0 where none has.
func (l *Lane) Since() schema.Seq { return l.since }

func (l *Lane) busy() bool { return l.InTurn || l.Message != nil || l.items.Len() > 0 }

// Lane returns what is known of a child, or of the run itself (""); nil when nothing is.
func (a *Run) Lane(child string) *Lane { return a.lanes[child] }

// Lanes returns all lanes that are known, in the order in which they became known.
func (a *Run) Lanes() []*Lane {
	return slices.SortedFunc(maps.Values(a.lanes), func(x, y *Lane) int { return x.order - y.order })
}

// lane returns the lane of a record, which its first record makes known.
func (a *Run) lane(child []byte) *Lane {
	if l := a.newest; l != nil && l.by == a.by && !a.by.Load() && l.Child == string(child) {
		return l
	}
	a.unshare()
	l := a.lanes[string(child)]
	if l == nil {
		l = a.meet(string(child))
	}
	l = a.own(l)
	a.revive(l)
	a.newest = l
	return l
}

// revive notes that a lane may have something that the end of the run ends.
func (a *Run) revive(l *Lane) {
	if !l.live {
		l.live = true
		a.live.Set(l.Child, struct{}{})
	}
}

// unshare makes the map of lanes this Run's alone.
func (a *Run) unshare() {
	if a.by == nil || a.by.Load() {
		if a.lanes = maps.Clone(a.lanes); a.lanes == nil {
			a.lanes = map[string]*Lane{}
		}
		a.by = new(atomic.Bool)
		a.newest = nil
	}
}

// own returns a lane that may be changed, in the place of one that copies may share.
func (a *Run) own(l *Lane) *Lane {
	if l.by != a.by {
		l = l.clone(a.by)
		a.lanes[l.Child] = l
	}
	return l
}

// meet makes a lane known by the path of the record at hand, and those above it.
func (a *Run) meet(child string) *Lane {
	parent := a.root()
	if child == "" {
		return parent
	}
	path := a.head.path()
	if n := len(path); n > 1 && path[n-1] == child { // path[0] is the run
		for i, up := range path[1 : n-1] {
			if up == a.run || up == path[0] || up == child {
				continue
			}
			l := a.lanes[up]
			if l == nil {
				l = a.below(parent, up, path[:i+2], true)
			}
			parent = l
		}
	}
	return a.below(parent, child, path, true)
}

func (a *Run) root() *Lane {
	l := a.lanes[""]
	if l == nil {
		l = &Lane{by: a.by}
		a.lanes[""] = l
		a.revive(l)
		a.known++
	}
	return l
}

// below makes a child known. A parent is known before its children, so there are no circles.
func (a *Run) below(parent *Lane, child string, path []string, repaired bool) *Lane {
	if parent.depth > maxDepth {
		parent = a.root()
	}
	if len(a.lanes) >= maxLanes {
		a.forgetLanes(parent)
	}
	l := &Lane{Child: strings.Clone(child), Parent: parent.Child, Path: slices.Clone(path), depth: parent.depth + 1,
		order: a.known, by: a.by}
	a.known++
	a.lanes[l.Child] = l
	a.revive(l)
	a.add(Transition{Kind: ChildBegin, Lane: l, Repaired: repaired})
	return l
}

// forgetLanes makes room for other lanes. Those that have ended are forgotten first, then those that have become known
// first.
func (a *Run) forgetLanes(parent *Lane) {
	all := slices.DeleteFunc(a.Lanes(), func(l *Lane) bool { return l.Child == "" || l.Child == parent.Child })
	slices.SortStableFunc(all, func(x, y *Lane) int { return rank(x) - rank(y) })
	for _, l := range all[:len(all)/4] {
		l = a.own(l)
		a.close(l)
		if !l.State.Final() {
			a.add(Transition{Kind: ChildEnd, Lane: l, Repaired: true})
		}
		a.pasts -= l.past.Len()
		delete(a.lanes, l.Child)
		a.live.Delete(l.Child)
	}
	a.newest = nil
}

// rank orders lanes by how soon they are forgotten.
func rank(l *Lane) int {
	switch {
	case l.busy():
		return 2
	case !l.State.Final():
		return 1
	}
	return 0
}

// spawn reads a child that is announced.
func (a *Run) spawn(l *Lane) {
	child := nameOf(a.read().Raw("child_id"))
	if schema.ValidRunID(child) != nil || child == a.run || a.lanes[child] != nil {
		return
	}
	path := a.head.path()
	if len(path) == 0 && a.run != "" {
		path = []string{a.run}
	}
	if path = append(slices.Clone(path), child); len(path) > maxDepth {
		path = nil
	}
	a.below(l, child, path, false)
}

// lifecycle reads the state of a lane. A final one ends what is open in it, and that of the run in all lanes. One that
// only serves to append to a run that has ended changes the state alone.
func (a *Run) lifecycle(l *Lane) {
	p, payload := a.read(), a.head.Payload
	if p.Yes("session") {
		if s, err := schema.ParseLifecycle(payload); err == nil && l.Child == "" {
			l.State = s.State
			l.setState(s.State, a.seq)
			a.add(Transition{Kind: StateChange, Lane: l, Value: payload})
		}
		return
	}
	if schema.RunState(nameOf(p.Raw("state"))).Final() {
		a.closeMessages(l)
	}
	a.cutImplicit(l)
	s, err := schema.ParseLifecycle(payload)
	if err != nil {
		return
	}
	if s.State.Final() {
		a.finish(l, s.State)
	} else if l.Child != "" && l.State.Final() {
		a.add(Transition{Kind: ChildBegin, Lane: l, Repaired: true})
	}
	l.State = s.State
	l.setState(s.State, a.seq)
	a.add(Transition{Kind: StateChange, Lane: l, Value: payload})
}

// closeMessages ends the lane's message, or those of all lanes.
func (a *Run) closeMessages(l *Lane) {
	for _, other := range a.lanesToEnd(l, func(l *Lane) bool { return l.Message != nil }) {
		a.cut(other)
	}
}

// finish ends what is open in a lane, or in all lanes.
func (a *Run) finish(l *Lane, state schema.RunState) {
	for _, other := range a.lanesToEnd(l, func(l *Lane) bool { return l.busy() || !l.State.Final() }) {
		a.close(other)
		if other.State.Final() {
			continue
		}
		if other.Child != "" {
			a.add(Transition{Kind: ChildEnd, Lane: other, Repaired: other != l})
		}
		other.State = state
	}
}

// lanesToEnd returns the lanes that end with a lane: itself, or all when it is the run. They are in the order
// of their ids, which has no meaning and is the same everywhere. Those in which nothing is left to end are not
// looked at again until they have another record.
func (a *Run) lanesToEnd(l *Lane, want func(*Lane) bool) (all []*Lane) {
	if l.Child != "" {
		if want(l) {
			all = append(all, l)
		}
		return all
	}
	for child := range a.live.All() {
		switch other := a.lanes[child]; {
		case want(other):
			all = append(all, other)
		case other != l && !other.busy() && other.State.Final():
			a.own(other).live = false
			a.live.Delete(child)
		}
	}
	slices.SortFunc(all, func(x, y *Lane) int { return strings.Compare(x.Child, y.Child) })
	for i := range all {
		all[i] = a.own(all[i])
	}
	return all
}

// close ends what is open in a lane.
func (a *Run) close(l *Lane) {
	if l.Message != nil {
		a.cut(l)
	}
	for l.items.Len() > 0 {
		a.endOldest(l)
	}
	a.endTurn(l, true)
}

func (a *Run) endTurn(l *Lane, repaired bool) {
	if l.InTurn {
		if l.Turn != "" {
			a.noteEnd(l, itemKey{TurnEnd, keyOf(jsonscan.AppendString(nil, l.Turn))}, past{ended: a.seq})
		}
		a.add(Transition{Kind: TurnEnd, Lane: l, ID: l.Turn, Repaired: repaired})
		l.InTurn, l.Turn = false, ""
	}
}

// turn reads the beginning or the end of a turn. A turn that has ended begins again. An end without a beginning is
// begun first, and one of a turn that has ended is passed over, unless a turn has ended it that may be none.
func (a *Run) turn(l *Lane, begins bool) {
	id := nameOf(a.read().Raw("turn_id"))
	if begins {
		a.startTurn(l, id)
		return
	}
	key := itemKey{TurnEnd, keyOf(a.read().Raw("turn_id"))}
	if _, over := l.past.Get(key); over && id != "" && (!l.InTurn || l.Turn != id && l.outer != id) {
		return
	}
	if !l.InTurn {
		l.InTurn, l.Turn = true, id
		a.add(Transition{Kind: TurnBegin, Lane: l, ID: id, Repaired: true})
	}
	for place := range l.asks.Backward() {
		a.closeItem(l, l.find(place.end, place.id), true)
	}
	a.endTurn(l, false)
}

func (a *Run) startTurn(l *Lane, id string) {
	l.heard = a.seq
	if l.InTurn && l.Turn == id && id != "" {
		return
	}
	key := itemKey{TurnEnd, keyOf(a.read().Raw("turn_id"))}
	outer := ""
	if _, again := l.past.Get(key); again {
		outer = l.Turn
	}
	a.endTurn(l, true)
	a.forget(l, key)
	l.InTurn, l.Turn, l.outer = true, id, outer
	a.add(Transition{Kind: TurnBegin, Lane: l, ID: id})
}
