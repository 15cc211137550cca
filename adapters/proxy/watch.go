package proxy

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// watch is the answer to one question about a response that is made in the background. Clients ask many times; what has
// the end of the response is a model call of the run that the response was asked for in, and is recorded once.
type watch struct {
	a    asked
	room *budget
	body *spool
}

func newWatch(p *Proxy, a asked) *watch {
	w := &watch{a: a, room: &budget{most: int64(p.cfg.CallBytes), of: p.room}}
	w.body = newSpool(w.room)
	return w
}

// settle looks at an answer that has passed, and records it where it has the end of the response.
func (w *watch) settle(g *passage, r *http.Request) {
	w.body.finish(nil)
	g.mu.Lock()
	outcome := g.outcome
	g.mu.Unlock()
	if lost, _, _, _ := w.body.fate(); outcome != OutcomeOK || lost > 0 {
		return
	}
	body, err := decodeBody(reader{context.WithoutCancel(r.Context()), w.body}, g.packed)
	if err != nil {
		return
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, int64(g.p.cfg.AnswerBytes)))
	if err != nil || provider.Problem(data) != "" {
		return
	}
	data = provider.OneLine(data)
	all, _ := provider.Parse(data)
	if all.Str("object") != "response" || !isFinal(all.Str("status")) || !g.p.made.locate(&w.a) && w.a.end == "" {
		return
	}
	if w.a.key.Run == "" {
		w.a.key.Run = g.p.cfg.IDs.Run(g.began)
	}
	c, why := g.p.openCall(w.a, responses, "", r, callerOf(r, g.up, g.path))
	if c == nil {
		g.p.reportUnrecorded(w.a.key, why, int64(len(data)))
		return
	}
	c.request.finish(nil)
	c.readHeader(&http.Response{StatusCode: http.StatusOK, Header: http.Header{}})
	c.answer.write(data)
	c.finishClient(OutcomeOK)
}

// isFinal reports whether a response with this status changes no more.
func isFinal(status string) bool {
	return status != "" && status != "queued" && status != "in_progress"
}

// making are the responses that this proxy has recorded, by their ids: where, and whether all of them. It is safe for
// concurrent use.
type making struct {
	mu          sync.Mutex
	now, before map[string]*asked
}

// maxMade bounds the responses that are known; as many older ones may be.
const maxMade = 4096

func (m *making) find(id string) *asked {
	if a := m.now[id]; a != nil {
		return a
	}
	return m.before[id]
}

// locate sets the run and the child of a request about a response to those that it was asked for in, unless the caller
// names a run. It reports whether something of the response may not be recorded.
func (m *making) locate(a *asked) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.find(a.watched)
	if known == nil || a.key.Tenant != known.key.Tenant || a.named && a.key != known.key {
		return true
	}
	a.key, a.named = known.key, known.named
	if a.child == "" {
		a.child = known.child
	}
	return !known.whole
}

// see remembers the responses in events that a call stores.
func (m *making) see(a asked, events []schema.Event) {
	for i := range events {
		e := &events[i]
		ends := e.Type == schema.TypeMessageEnd
		if !ends && e.Type != schema.TypeMessageStart && !strings.HasSuffix(e.Type, ".response") {
			continue
		}
		all, _ := provider.Parse(e.Payload)
		known := a
		known.whole = ends && all.Get("incomplete") == nil
		m.mu.Lock()
		if len(m.now) >= maxMade || m.now == nil {
			m.before, m.now = m.now, make(map[string]*asked)
		}
		m.now[cmp.Or(all.Str("response_id"), all.Str("message_id"), all.Str("id"))] = &known
		m.mu.Unlock()
	}
}

// hasResponse reports whether the log has all of a response.
func (m *memory) hasResponse(id string) bool {
	return slices.ContainsFunc(m.answers, func(a *answer) bool { return !a.partial && slices.Contains(a.names, id) })
}
