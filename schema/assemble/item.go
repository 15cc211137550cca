package assemble

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Item is something of a lane that has begun and has not ended, beside its turn and its message. It is replaced, never
// changed.
type Item struct {
	// Kind is what it is: CallAsk for a call that has not started, CallStart, ModelStart, TaskStart, InputRequest.
	Kind   Kind
	ID     string // "" when it has none, or one of more than 1 KiB
	Tool   string // of a call, where known
	Server []byte // name of the MCP server that a call goes to, a JSON string; nil when there is none
	Seq    schema.Seq
	// Works reports that the tool of a call works: a CallRun has been returned.
	Works bool

	key   jsonscan.Sum
	said  uint64     // sum of what its beginning said; 0: it had none
	asked schema.Seq // of a call: beginning of the message that has asked for it; 0: none has
}

// AskSeq returns where the message begins that has asked for a call; 0 when none has.
func (it *Item) AskSeq() schema.Seq { return it.asked }

const (
	// maxItems bounds the items of a lane, and those of all lanes. The oldest of the lane ends when there are more.
	maxItems    = 1 << 14
	maxAllItems = 1 << 15
	// maxName bounds the name of a server, as it is written.
	maxName = 256
)

// ends are the kinds that end an item.
var ends = [...]Kind{CallAsk: CallEnd, CallStart: CallEnd, ModelStart: ModelEnd, TaskStart: TaskEnd,
	InputRequest: InputAnswer}

// itemKey is what an item is found by: the kind that ends it, and the sum of its id. So a call is found by its end
// whether it was asked for or has started.
type itemKey struct {
	end Kind
	id  jsonscan.Sum
}

// endKey is under what an open item is found when it ends.
func (it *Item) endKey() itemKey { return itemKey{ends[it.Kind], it.key} }

// isAbandoned reports whether the item is a call that no tool will start when its turn has ended. A provider
// may have paused its turn for one of its own.
func (it *Item) isAbandoned() bool { return it.Kind == CallAsk && it.Server == nil }

// put adds an item, or sets the one in the place of another.
func (l *Lane) put(it *Item) {
	l.items.Set(it.endKey(), it)
	if it.isAbandoned() {
		l.asks.Set(it.endKey(), struct{}{})
	}
}

// openItem adds an item. One of the same kind and id that is open ends before it.
func (a *Run) openItem(l *Lane, it *Item, repaired bool) *Item {
	if was, ok := l.items.Get(it.endKey()); ok {
		if was.Kind == CallAsk && it.Server == nil {
			it.Server = was.Server
		}
		it.asked = max(it.asked, was.asked)
		if was.Kind == CallAsk && it.Kind == CallStart {
			a.remove(l, was)
		} else {
			a.closeItem(l, was, true)
		}
	}
	if l.items.Len() >= maxItems {
		a.endOldest(l)
	}
	l.put(it)
	a.items++
	a.add(Transition{Kind: it.Kind, Lane: l, Item: it, Repaired: repaired})
	if a.items > maxAllItems {
		a.endOldest(l)
	}
	return it
}

// Items returns what is open of the lane, in the order of its beginning.
func (l *Lane) Items() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for _, it := range l.items.All() {
			if !yield(it) {
				return
			}
		}
	}
}

// Item returns the item of a kind with an id; nil when it is not open.
func (l *Lane) Item(kind Kind, id string) *Item {
	if id == "" {
		return nil
	}
	it := l.find(ends[kind], keyOf(jsonscan.AppendString(nil, id)))
	if it == nil || it.Kind != kind || it.ID != id {
		return nil
	}
	return it
}

// find returns the item that a kind of end is of; nil when there is none.
func (l *Lane) find(end Kind, key jsonscan.Sum) *Item {
	it, _ := l.items.Get(itemKey{end, key})
	return it
}

// closeItem ends an open item.
func (a *Run) closeItem(l *Lane, it *Item, repaired bool) {
	a.remove(l, it)
	switch it.Kind {
	case InputRequest:
	case CallAsk: // a start or an end that comes yet is of this one
		a.noteEnd(l, it.endKey(), past{ended: a.seq, asked: it.asked, ask: it})
	default:
		a.noteEnd(l, it.endKey(), past{said: it.said, begun: it.Seq, ended: a.seq, asked: it.asked})
	}
	a.add(Transition{Kind: ends[it.Kind], Lane: l, Item: it, Repaired: repaired})
}

// endOldest ends the item of a lane that has begun first.
func (a *Run) endOldest(l *Lane) {
	if _, it, ok := l.items.First(); ok {
		a.closeItem(l, it, true)
	}
}

func (a *Run) remove(l *Lane, it *Item) {
	l.items.Delete(it.endKey())
	l.asks.Delete(it.endKey())
	a.items--
}

// item reads the beginning or the end of an item of a kind. What has no id is none. An end without a beginning is begun
// first, but for an answer: that may come twice. A request for input that waits is not begun again.
func (a *Run) item(l *Lane, kind Kind, begins bool, name string) {
	p := a.read()
	id := p.Raw(name)
	if !jsonscan.IsString(id) {
		return
	}
	it := &Item{Kind: kind, Seq: a.seq, key: keyOf(id)}
	was := l.find(ends[kind], it.key)
	open := was != nil && was.Kind == kind
	if !begins && open {
		a.closeItem(l, was, false)
		return
	}
	if kind == InputRequest && (!begins || a.again) {
		return
	}
	if was == nil && kind == CallStart {
		was = l.findAsk(it.key)
	}
	if kind != InputRequest && a.isKnown(l, it, was, begins, p) {
		return
	}
	it.ID = nameOf(id)
	if kind == CallStart {
		it.Tool = nameOf(p.Raw("tool"))
		it.Server = ServerOf(a.head.Payload)
	}
	if was != nil { // the block that asked for it has named it
		it.Tool, it.asked = cmp.Or(it.Tool, was.Tool), was.asked
	}
	a.openItem(l, it, !begins)
	if begun := l.find(ends[kind], it.key); !begins && begun != nil {
		a.closeItem(l, begun, false)
	}
}

// isKnown reports whether the record at hand says nothing new of an item, of which was is open. It keeps what is
// known of the item.
func (a *Run) isKnown(l *Lane, it, was *Item, begins bool, p jsonscan.Fields) bool {
	if begins {
		it.said = startSum(p)
		if was != nil && was.Kind == it.Kind && was.said == 0 { // it is late
			known := *was
			known.said = it.said
			l.items.Set(it.endKey(), &known)
			return true
		}
		if was != nil && was.Kind == it.Kind {
			return was.said == it.said
		}
		return a.isRepeat(l, it)
	}
	ended, ok := l.past.Get(it.endKey())
	if ok && was != nil && was.asked > ended.begun { // it was asked for again, and its start is missing
		a.forget(l, it.endKey())
		return false
	}
	return ok
}

// work reads that the tool of a call works. The call starts if it has only been asked for. A call that is not open, or
// works already, stays as it is.
func (a *Run) work(l *Lane) {
	id := a.read().Raw("call_id")
	if !jsonscan.IsString(id) {
		return
	}
	key := keyOf(id)
	was := cmp.Or(l.find(CallEnd, key), l.findAsk(key))
	if was == nil || was.Works {
		return
	}
	it := *was
	it.Works = true
	if it.Kind == CallAsk {
		it.Kind, it.Seq = CallStart, a.seq
		a.openItem(l, &it, true)
	} else {
		l.put(&it)
	}
	a.add(Transition{Kind: CallRun, Lane: l, Item: &it})
}

// output reads a piece of a call's output. It begins a call of which nothing has begun, or that has only been asked
// for: its start is missing.
func (a *Run) output(l *Lane) {
	id := a.read().Raw("call_id")
	if !jsonscan.IsString(id) {
		return
	}
	it := &Item{Kind: CallStart, Seq: a.seq, key: keyOf(id)}
	was := cmp.Or(l.find(CallEnd, it.key), l.findAsk(it.key))
	if was != nil && was.Kind == CallStart || a.isKnown(l, it, was, false, nil) {
		return
	}
	it.ID = nameOf(id)
	if was != nil {
		it.Tool, it.asked = was.Tool, was.asked
	}
	a.openItem(l, it, true)
}

// ask notes that a block asks for a call, unless the call has started already.
func (a *Run) ask(l *Lane, id, tool, block []byte) {
	if !jsonscan.IsString(id) {
		return
	}
	key := keyOf(id)
	was := l.find(CallEnd, key)
	if was != nil && was.Kind == CallAsk && was.asked == l.Message.Start {
		if was.Tool == "" { // the start of its block is late
			named := *was
			named.Tool = nameOf(tool)
			l.items.Set(was.endKey(), &named)
		}
		return
	}
	if a.noteAsk(l, id, l.Message.Start); was != nil && was.Kind == CallStart {
		return
	}
	it := &Item{Kind: CallAsk, Seq: a.seq, key: key, asked: l.Message.Start}
	it.ID = nameOf(id)
	it.Tool = nameOf(tool)
	it.Server = ServerOf(block)
	a.openItem(l, it, false)
}

// serverNames are the fields that name the MCP server of a call, in the order in which they count.
var serverNames = [...]string{"mcp_server_name", "server_name", "server_label"}

// ServerOf returns the name of the MCP server that an object names, a JSON string; nil when there is none.
func ServerOf(object []byte) []byte {
	var found [3][]byte
	for name, v := range jsonscan.Members(object) {
		if i := slices.Index(serverNames[:], string(name)); i >= 0 {
			found[i] = v
		}
	}
	for _, v := range found {
		if jsonscan.IsString(v) && len(v) > 2 && len(v) <= maxName {
			return bytes.Clone(v)
		}
	}
	return nil
}
