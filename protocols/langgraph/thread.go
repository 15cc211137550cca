package langgraph

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema"
)

// Request is a request for input that waits for an answer.
type Request struct {
	Lane      string // the child that asks; "" is the run itself
	ID        string
	Namespace []byte // a JSON list
}

// Requests returns those that wait, in the order in which they were made.
func (p *Projector) Requests() []Request {
	list := make([]Request, 0, p.reading.Questions().Requests())
	for _, r := range p.requests.All() {
		if p.isWaiting(r.requestKey) {
			list = append(list, Request{r.lane, r.id, r.namespace})
		}
	}
	return list
}

// AllRequests returns the ids of the requests that the thread has made, the newest, answered or not.
func (p *Projector) AllRequests() map[string]bool {
	all := make(map[string]bool, len(p.asked))
	for _, id := range p.asked {
		all[id] = true
	}
	return all
}

// LaneOf returns the child that a namespace, a JSON list, is; "" is the run itself. ok is false for one that the thread
// does not have.
func (p *Projector) LaneOf(namespace []byte) (child string, ok bool) {
	var segments []string
	if json.Unmarshal(namespace, &segments) != nil {
		return "", false
	}
	child, ok = p.spaces[string(namespaceOf(segments))]
	return child, ok
}

// AppendTree appends the agents of the thread as agent.getTree has them: the run, and below it its children.
func (p *Projector) AppendTree(dst []byte) []byte {
	below := map[string][]string{}
	for id, l := range p.lanes {
		if id != "" {
			key := strings.Join(l.segments[:len(l.segments)-1], "\x00")
			below[key] = append(below[key], id)
		}
	}
	return p.appendNode(dst, "", below)
}

func (p *Projector) appendNode(dst []byte, id string, below map[string][]string) []byte {
	l := p.lanes[id]
	name := p.graph
	if id != "" {
		name, _, _ = strings.Cut(l.segments[len(l.segments)-1], ":")
	}
	o := append(object(dst), '{').Raw("namespace", l.namespace).Str("status", p.statusOf(id)).Str("graph_name", name)
	children := below[strings.Join(l.segments, "\x00")]
	slices.Sort(children)
	if len(children) > 0 {
		o = append(o.Name("children"), '[')
		for _, c := range children {
			o = p.appendNode(sepList(o), c, below)
		}
		o = append(o, ']')
	}
	return o.End()
}

// statusOf is the newest lifecycle of an agent.
func (p *Projector) statusOf(id string) string {
	if id == "" {
		switch {
		case p.run.active:
			return "running"
		case p.asking():
			return interrupted
		}
		if p.last == "" {
			return "started"
		}
		return p.last
	}
	if l := p.reading.Lane(id); l != nil && l.State.Final() {
		return endOf(l.State)
	}
	return "running"
}

// isForked reports whether a payload of checkpoint.created or state.values was stored with a thread, and is no work of
// an agent.
func isForked(payload []byte) bool {
	v := schema.Field(payload, "source")
	return bytes.Equal(v, []byte(`"fork"`)) || bytes.Equal(v, []byte(`"update"`))
}
