package qoder

import (
	"maps"
	"slices"
	"time"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// thread is a lane of the session: the coordinator's, or a child's. One that others may share is replaced, never
// changed: Projector.change.
type thread struct {
	id       string     // sthr_…
	child    string     // id of the child; "" is the coordinator
	archived string     // time; "" when it is not
	closed   schema.Seq // where; 0 when it is not archived
	parent   string     // child that spawned it; "" is the coordinator
	use      string     // event id of the agent.tool_use that spawned it; "" when that is not known
	name     string     // of its agent
	order    int        // how many were known before
	created  string     // time
	updated  string     // time of its newest status
	told     bool       // session.thread_created was emitted

	running    bool
	terminated bool
	asked      bool       // something was asked of it since it last ran: its next end is emitted even when it did not run
	cancelled  bool       // by a command, in this turn
	owed       schema.Seq // newest message to it that nobody is known to have begun to answer; 0: there is none
	takes      bool       // its agent says which commands it has taken
	held       bool       // its state is one that waits: paused, awaiting approval
	open       bool       // a message of the assistant is open
	pending    bool       // something waits that is emitted when that message has ended
	stop       stop       // why it is idle
	turn       string     // turn_id of the open turn
	since      time.Time  // when it began to run
	active     time.Duration
	usage      counts
	called     counts // by messages since the open model call began
}

// threads are a session's threads.
type threads struct {
	lanes   shared[string, *thread]       // by child
	running ordered.Map[string, struct{}] // the children that run
}

func (t *threads) clone() threads { return threads{lanes: t.lanes.clone(), running: t.running.Clone()} }

func (t *threads) size() int { return 1 << 10 * len(t.lanes.m) }

// coordinator returns the thread of the run itself.
func (t *threads) coordinator() *thread { return t.lanes.m[""] }

// of returns a lane's thread, which it makes known, and the coordinator with it.
func (t *threads) of(p *Projector, child string) *thread {
	if th := t.lanes.m[child]; th != nil {
		return th
	}
	if child != "" {
		t.of(p, "")
	}
	th := &thread{
		id: ThreadID(p.session, child), child: child, name: child, order: len(t.lanes.m), asked: true,
		created: p.updated, updated: p.updated, told: child == "",
	}
	if child == "" {
		th.created = p.origin
	}
	t.lanes.set(child, th)
	return th
}

// byID returns a thread by its id; nil when there is none. The coordinator is always there.
func (t *threads) byID(id string) *thread {
	for _, th := range t.lanes.m {
		if th.id == id {
			return th
		}
	}
	return nil
}

// inOrder returns all threads in the order in which they became known.
func (t *threads) inOrder() []*thread {
	return slices.SortedFunc(maps.Values(t.lanes.m), byOrder)
}

// working returns the children that run, in the same order.
func (t *threads) working() []*thread {
	all := make([]*thread, 0, t.running.Len())
	for child := range t.running.All() {
		all = append(all, t.lanes.m[child])
	}
	slices.SortFunc(all, byOrder)
	return all
}

func byOrder(a, b *thread) int { return a.order - b.order }

// change replaces a thread with a changed copy, which it returns.
func (p *Projector) change(t *thread, fn func(*thread)) *thread {
	next := *t
	fn(&next)
	p.threads.lanes.set(next.child, &next)
	if _, runs := p.threads.running.Get(next.child); next.child != "" && next.running && !runs {
		p.threads.running.Set(next.child, struct{}{})
	} else if runs && !next.running {
		p.threads.running.Delete(next.child)
	}
	if p.rec.thread == t {
		p.rec.thread = &next
	}
	return &next
}

// arrive emits a child whose first record this is, and which nobody has announced.
func (p *Projector) arrive() {
	t := p.rec.thread
	if t.told {
		return
	}
	above := p.reading.Lane(t.child).Parent
	if p.threads.lanes.m[above] == nil {
		above = ""
	}
	p.addChild(t, above, "", "")
}

// addChild emits that there is a child.
func (p *Projector) addChild(t *thread, parent, use, name string) *thread {
	t = p.change(t, func(t *thread) {
		t.told, t.parent, t.use = true, parent, use
		if name != "" {
			t.name = name
		}
	})
	b := appendString([]byte(`,"agent_name":`), t.name)
	b = appendString(append(b, `,"parent_thread_id":`...), p.parentID(t))
	b = appendOptional(append(b, `,"parent_tool_use_id":`...), t.use)
	p.emit(emission{typ: "session.thread_created", thread: t, also: true, body: append(b, `,"workflow_run_id":null`...)})
	return t
}

// parentID is the id of the thread above a child's.
func (p *Projector) parentID(t *thread) string {
	if up := p.threads.lanes.m[t.parent]; up != nil {
		return up.id
	}
	return p.threads.coordinator().id
}

// maxName bounds the name of an agent, in bytes.
const maxName = 256

// spawn reads a child that is announced: that it is there, and what it is asked to do.
func (p *Projector) spawn() {
	child, from := text(p.rec.payload, "child_id"), p.rec.thread
	if schema.ValidRunID(child) != nil || child == from.child {
		return
	}
	to := p.threads.of(p, child)
	if !to.told {
		use := ""
		if c := p.tools.call(callKey(from.child, field(p.rec.payload, "call_id"))); c != nil {
			use = c.id
		}
		to = p.addChild(to, from.child, use, p.agentName())
	}
	prompt := field(p.rec.payload, "prompt")
	if !isString(prompt) {
		return
	}
	content := appendContent([]byte(`,"content":`), prompt)
	sent := append(appendString(append(slices.Clip(content), `,"to_agent_name":`...), to.name),
		`,"direction":"sent","to_session_thread_id":"`...)
	p.emit(emission{typ: "agent.thread_message_sent", also: true, body: append(append(sent, to.id...), '"')})
	received := append(appendOptional(append(slices.Clip(content), `,"from_agent_name":`...), from.name),
		`,"direction":"received","from_session_thread_id":"`...)
	p.emit(emission{typ: "agent.thread_message_received", thread: to, body: append(append(received, from.id...), '"')})
}

// agentName is what a spawn calls the child's agent.
func (p *Projector) agentName() string {
	for _, v := range jsonscan.Values(p.rec.payload, []string{"agent_name", "agent", "name"}) {
		if s, _ := jsonscan.Unquote(v); s != "" && len(s) <= maxName {
			return s
		}
	}
	return ""
}

// Lane returns the child whose thread has an id; "" is the coordinator.
func (p *Projector) Lane(id string) (child string, ok bool) {
	t := p.threads.byID(id)
	if t == nil || t.id != id {
		return "", false
	}
	return t.child, true
}

// ThreadInfo is what a list of threads is filtered by.
type ThreadInfo struct {
	ID       string
	Child    string // id of the child; "" is the coordinator
	Status   string // idle, running, archived or terminated
	Archived bool
	Busy     bool // as Projector.Busy
}

// Threads returns all threads, the coordinator first, then children in the order in which they became known.
func (p *Projector) Threads() []ThreadInfo {
	sorted := p.threads.inOrder()
	all := make([]ThreadInfo, 0, len(sorted))
	for _, t := range sorted {
		all = append(all, ThreadInfo{ID: t.id, Child: t.child, Status: p.threadStatus(t),
			Archived: p.archiveTime(t) != "", Busy: t.busy()})
	}
	return all
}

// archiveTime is when a thread was archived: by itself, or the coordinator's with the session; "" when it was
// not.
func (p *Projector) archiveTime(t *thread) string {
	if t.child == "" && t.archived == "" {
		return p.info.archived
	}
	return t.archived
}

func (p *Projector) threadStatus(t *thread) string {
	switch {
	case p.archiveTime(t) != "":
		return "archived"
	case t.running:
		return "running"
	case t.terminated:
		return "terminated"
	}
	return "idle"
}

// AppendThread appends the object of a thread (qoder §1.4, and what its clients' libraries expect of it).
func (p *Projector) AppendThread(dst []byte, id string) ([]byte, bool) {
	t := p.threads.byID(id)
	if t == nil {
		return dst, false
	}
	role, agent := "coordinator", p.agent()
	if t.child != "" {
		role, agent = "child", snapshot{name: t.name}
	}
	b := appendString(append(dst, `{"id":`...), t.id)
	b = appendString(append(b, `,"type":"session_thread","session_id":`...), p.session)
	b = append(b, `,"parent_thread_id":`...)
	if t.child == "" {
		b = append(b, `null`...)
	} else {
		b = appendString(b, p.parentID(t))
	}
	b = agent.appendJSON(append(b, `,"agent":`...))
	b = agent.appendID(append(b, `,"agent_id":`...))
	b = agent.appendVersion(append(b, `,"agent_version":`...))
	b = append(b, `,"name":`...)
	if t.child == "" {
		b = agent.appendName(b)
	} else {
		b = appendString(b, t.name)
	}
	b = append(append(b, `,"role":"`...), role...)
	b = append(append(b, `","status":"`...), p.threadStatus(t)...)
	b = append(b, `","stop_reason":`...)
	if t.running || t.stop == stopNone {
		b = append(b, `null`...)
	} else {
		b = p.appendStop(b, t)
	}
	b = appendOptional(append(b, `,"created_by_tool_use_id":`...), t.use)
	b = p.appendStats(append(b, `,"stats":`...), t)
	b = appendUsage(append(b, `,"usage":`...), t.usage)
	b = append(b, `,"workflow_run_id":null`...)
	b = appendOptional(append(b, `,"archived_at":`...), p.archiveTime(t))
	b = appendString(append(b, `,"created_at":`...), t.created)
	b = appendString(append(b, `,"updated_at":`...), t.updated)
	return append(b, '}'), true
}

// appendOptional appends a JSON string, or null for "".
func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, `null`...)
	}
	return appendString(b, s)
}
