package assemble

import (
	"bytes"
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

	key jsonscan.Sum
}

const (
	// maxItems bounds the items of a lane, and those of all lanes. The oldest of the lane ends when there are more.
	maxItems    = 1 << 14
	maxAllItems = 1 << 15
	// maxName bounds the name of a server, as it is written.
	maxName = 256
)

// ends are the kinds that end an item.
var ends = [...]Kind{CallAsk: CallEnd, CallStart: CallEnd, ModelStart: ModelEnd, TaskStart: TaskEnd, InputRequest: InputAnswer}

// begin adds an item. One of the same kind and id that is open ends before it.
func (a *Run) begin(l *Lane, it *Item, repaired bool) *Item {
	if i := l.find(ends[it.Kind], it.key); i >= 0 {
		was := l.Items[i]
		if was.Kind == CallAsk && it.Server == nil {
			it.Server = was.Server
		}
		if was.Kind == CallAsk && it.Kind == CallStart {
			a.remove(l, i)
		} else {
			a.end(l, i, true)
		}
	}
	if len(l.Items) >= maxItems {
		a.end(l, 0, true)
	}
	l.Items, l.keys = append(l.Items, it), append(l.keys, it.key)
	a.items++
	a.add(Transition{Kind: it.Kind, Lane: l, Item: it, Repaired: repaired})
	if a.items > maxAllItems {
		a.end(l, 0, true)
	}
	return it
}

// Item returns the item of a kind with an id; nil when it is not open.
func (l *Lane) Item(kind Kind, id string) *Item {
	for _, it := range l.Items {
		if it.Kind == kind && it.ID == id && id != "" {
			return it
		}
	}
	return nil
}

// find returns the index of the item that a kind of end is of; -1 when there is none.
func (l *Lane) find(end Kind, key jsonscan.Sum) int {
	for i := range l.keys {
		if l.keys[i] == key && ends[l.Items[i].Kind] == end {
			return i
		}
	}
	return -1
}

func (a *Run) end(l *Lane, i int, repaired bool) {
	it := l.Items[i]
	a.remove(l, i)
	a.add(Transition{Kind: ends[it.Kind], Lane: l, Item: it, Repaired: repaired})
}

func (a *Run) remove(l *Lane, i int) {
	l.Items, l.keys = slices.Delete(l.Items, i, i+1), slices.Delete(l.keys, i, i+1)
	a.items--
}

// item reads the beginning or the end of an item of a kind. What has no id is none. An end without a beginning is begun
// first, but for an answer: that may come twice.
func (a *Run) item(l *Lane, kind Kind, begins bool, name string) {
	p := a.read()
	id := p.Raw(name)
	if !jsonscan.IsString(id) {
		return
	}
	it := &Item{Kind: kind, Seq: a.seq, key: keyOf(id)}
	if i := l.find(ends[kind], it.key); !begins && i >= 0 && l.Items[i].Kind == kind {
		a.end(l, i, false)
		return
	}
	if !begins && kind == InputRequest {
		return
	}
	it.ID = nameOf(id)
	if kind == CallStart {
		it.Tool = nameOf(p.Raw("tool"))
		it.Server = ServerOf(a.head.Payload)
	}
	a.begin(l, it, !begins)
	if i := l.find(ends[kind], it.key); !begins && i >= 0 {
		a.end(l, i, false)
	}
}

// work reads that the tool of a call works. The call starts if it has only been asked for. A call that is not open, or
// works already, stays as it is.
func (a *Run) work(l *Lane) {
	id := a.read().Raw("call_id")
	if !jsonscan.IsString(id) {
		return
	}
	key := keyOf(id)
	i := l.find(CallEnd, key)
	if i < 0 || l.Items[i].Works {
		return
	}
	it := *l.Items[i]
	it.Works = true
	if it.Kind == CallAsk {
		it.Kind, it.Seq = CallStart, a.seq
		a.begin(l, &it, true)
	} else {
		l.Items[i] = &it
	}
	a.add(Transition{Kind: CallRun, Lane: l, Item: &it})
}

// ask notes that a block asks for a call, unless the call has started already.
func (a *Run) ask(l *Lane, id, tool, block []byte) {
	if !jsonscan.IsString(id) {
		return
	}
	key := keyOf(id)
	if i := l.find(CallEnd, key); i >= 0 && l.Items[i].Kind == CallStart {
		return
	}
	it := &Item{Kind: CallAsk, Seq: a.seq, key: key}
	it.ID = nameOf(id)
	it.Tool = nameOf(tool)
	it.Server = ServerOf(block)
	a.begin(l, it, false)
}

// ServerOf returns the name of the MCP server that an object names, a JSON string; nil when there is none.
func ServerOf(object []byte) []byte {
	for _, name := range [...]string{"mcp_server_name", "server_name", "server_label"} {
		if v := schema.Field(object, name); jsonscan.IsString(v) && len(v) > 2 && len(v) <= maxName {
			return bytes.Clone(v)
		}
	}
	return nil
}
