package proxy

import (
	"container/list"
	"net/http"
	"strings"
	"sync"

	"agentstream/adapters/redact"
	"agentstream/schema"
)

// threads are the conversations whose calls this proxy has recorded, by tenant. A call that names no run goes on in the
// run of the conversation that its request begins with. Nothing of it is in the log: another proxy, and this one after
// a restart, begins a run for the next call. It is safe for concurrent use.
type threads struct {
	mu      sync.Mutex
	tenants map[string]*tenantThreads
}

// tenantThreads are those of one tenant, by what identifies the conversation and the caller.
type tenantThreads struct {
	at  map[sum]*list.Element
	old *list.List // of *asking, the one that was used last at the end
}

// asking is what was asked at one place: several conversations may begin alike.
type asking struct {
	id   sum
	list []*thread // the newest last
}

// thread is a call, as far as the next one of its conversation needs it.
type thread struct {
	key     schema.RunKey
	answer  *answer // nil: it is not known yet
	over    bool    // the call is
	waiting bool    // it has failed, and waits for its repeat
	used    bool    // a call has gone on from it
}

// Bounds of what is remembered of a tenant.
const (
	maxAskings = 4096
	maxAlike   = 8 // conversations that begin alike
)

// callerOf identifies who makes a call, and where: two callers with the same credentials may have different base URLs.
func callerOf(r *http.Request, up *Upstream, path string) sum {
	base, _ := split(path, "/models/")
	for _, end := range []string{"/messages", "/chat/completions", "/responses"} {
		if rest, ok := strings.CutSuffix(path, end); ok {
			base = rest
		}
	}
	who := redact.Caller(r.Header, r.URL)
	return sumOf([]byte(up.Name + base + "\x00" + string(who[:])))
}

// idOf identifies a place in a conversation of a caller.
func idOf(caller, place sum) sum { return sumOf(append(caller[:], place[:]...)) }

// nameID identifies what the provider keeps of a conversation, by the name that the caller knows.
func nameID(caller sum, name string) sum { return idOf(caller, sumOf([]byte("name "+name))) }

// find returns the run that a call goes on in; the zero key: none.
func (t *threads) find(c *call, talk *conversation) schema.RunKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.tenants[c.asked.key.Tenant]
	if mine == nil {
		return schema.RunKey{}
	}
	sums, n := talk.prefixSums(), talk.askLength()
	if n > 0 {
		for _, th := range mine.get(idOf(c.caller, sums[n])) {
			failed := th.over && !th.used && (th.answer == nil || th.answer.failed)
			if th.waiting || c.retries > 0 && (failed || !th.over) {
				th.used = true
				return th.key
			}
		}
	}
	if talk.scope != "" {
		for _, th := range mine.get(nameID(c.caller, talk.scope)) {
			return th.key
		}
	}
	for i := n - 1; i > 0; i-- {
		if th := best(mine.get(idOf(c.caller, sums[i])), &talk.items[i]); th != nil {
			th.used = true
			return th.key
		}
	}
	return schema.RunKey{}
}

// best returns the thread whose answer is the next item. Where several may be, it is one that no call has gone on from
// yet, and then the newest.
func best(list []*thread, next *item) (found *thread) {
	most := 0
	for _, th := range list {
		fits := 2
		switch {
		case !th.over:
			fits = 4
		case th.answer != nil && th.answer.has(next, false):
			fits = 6
		}
		if !th.used {
			fits++
		}
		if fits >= most {
			most, found = fits, th
		}
	}
	return found
}

// get returns the threads at an id, of which the newest are last.
func (t *tenantThreads) get(id sum) []*thread {
	e := t.at[id]
	if e == nil {
		return nil
	}
	t.old.MoveToBack(e)
	return e.Value.(*asking).list
}

// put adds a thread at an id, and forgets the oldest where there are too many.
func (t *tenantThreads) put(id sum, th *thread) {
	e := t.at[id]
	if e == nil {
		e = t.old.PushBack(&asking{id: id})
		t.at[id] = e
	}
	t.old.MoveToBack(e)
	a := e.Value.(*asking)
	a.list = append(a.list, th)
	if len(a.list) > maxAlike {
		a.list = a.list[1:]
	}
	for t.old.Len() > maxAskings {
		first := t.old.Remove(t.old.Front()).(*asking)
		delete(t.at, first.id)
	}
}

// move sets the run of a call to that which it is in.
func (t *threads) move(c *call) {
	if c.thread == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.thread.key = c.asked.key
}

// add remembers a call in a run; nil when its request says nothing.
func (t *threads) add(c *call, key schema.RunKey, talk *conversation) *thread {
	n := talk.askLength()
	if n == 0 || c.asked.child != "" {
		return nil
	}
	th := &thread{key: key}
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.tenants[c.asked.key.Tenant]
	if mine == nil {
		if t.tenants == nil {
			t.tenants = make(map[string]*tenantThreads)
		}
		mine = &tenantThreads{at: make(map[sum]*list.Element), old: list.New()}
		t.tenants[c.asked.key.Tenant] = mine
	}
	mine.put(idOf(c.caller, talk.prefixSums()[n]), th)
	if talk.rolling {
		mine.put(nameID(c.caller, talk.scope), th)
	}
	return th
}

// wait notes whether a call that has failed waits for its repeat.
func (t *threads) wait(th *thread, waiting bool) {
	if th == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	th.waiting = waiting
}

// finish notes that a call is over, and what came of it.
func (t *threads) finish(c *call, a *answer) {
	if c.thread == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.thread.over, c.thread.waiting, c.thread.answer = true, false, a
	if a == nil {
		return
	}
	for _, name := range a.names {
		t.tenants[c.asked.key.Tenant].put(nameID(c.caller, name), c.thread)
	}
}
