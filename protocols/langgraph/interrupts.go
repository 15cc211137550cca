package langgraph

import (
	"bytes"
	"cmp"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// interruptsName is the member of a state in which the older API has the requests that wait.
const interruptsName = "__interrupt__"

// maxInterrupts bounds the requests that one event of the older API has. Of more the newest are in it; a command
// answers no more, and the thread's state has all.
const maxInterrupts = dialect.MaxList

// StateIn returns the state in values that an agent has stored: without the requests that wait, which the older agents
// put beside it, or nil where there is nothing but those.
func StateIn(values []byte) []byte {
	if schema.Field(values, interruptsName) == nil {
		return values
	}
	o := object{'{'}.Members(values, interruptsName)
	if len(o) == 1 {
		return nil
	}
	return o.End()
}

// WithInterrupts returns values with a list of the requests that wait. Values that are no object, and those of a list
// that is empty, are returned as they are.
func WithInterrupts(values, list []byte) []byte {
	if len(list) <= len(`[]`) || len(values) == 0 || values[0] != '{' {
		return values
	}
	return object{'{'}.Members(values, interruptsName).Raw(interruptsName, list).End()
}

// AppendWaiting appends the members next and tasks of the state of a namespace below the root, for the requests that
// wait in it.
func (p *Projector) AppendWaiting(dst []byte, namespace []string) []byte {
	waits := p.appendWaiting(object{'{'}, quote(cmp.Or(p.graph, "agent")), namespaceOf(namespace))
	return append(dst, waits[1:]...)
}

// Checkpoint is the id of the checkpoint that the thread's state is of: the newest of the root, or else the run's.
func (p *Projector) Checkpoint() string { return cmp.Or(p.checkpoint.id, p.run.id) }

// appendWaiting writes next and tasks of a state: of the root, where namespace is nil, with all requests of the thread
// that wait, or of a namespace with its own.
func (p *Projector) appendWaiting(o, node object, namespace []byte) object {
	list := p.waitingIn(namespace, p.requests.Len())
	works := len(list) > 0 || namespace == nil && (p.run.active || p.asking())
	o = append(o.Name("next"), '[')
	if works {
		o = append(o, node...)
	}
	o = append(append(o, ']').Name("tasks"), '[')
	if works {
		o = append(o, '{').Str("id", p.run.id).Raw("name", node)
		o = append(o.Name("interrupts"), '[')
		for _, r := range list {
			o = append(sepList(o), '{')
			o = o.Str("id", r.id).Raw("value", r.payload).Raw("namespace", r.namespace).End()
		}
		o = append(o, `],"checkpoint":null,"error":null,"state":null}`...)
	}
	return append(o, ']')
}

// waitingIn returns the requests that wait, in their order: of a namespace, or of all for nil, and at most so many, the
// newest.
func (p *Projector) waitingIn(namespace []byte, most int) (list []request) {
	for _, r := range p.requests.Backward() {
		if len(list) == most {
			break
		}
		if (namespace == nil || bytes.Equal(r.namespace, namespace)) && p.isWaiting(r.requestKey) {
			list = append(list, r)
		}
	}
	slices.Reverse(list)
	return list
}

// addValues adds a state. Clients replace what they have by it, so the requests that wait are in it, after
// those that it has itself.
func (s *said) addValues() {
	data := s.raw
	if s.p.older.wants&modeValues == 0 {
		return
	}
	if s.p.asking() {
		own := schema.Field(data, interruptsName)
		ids, known := idsOf(own)
		if known { // else nobody can tell which of those that wait it has
			data = WithInterrupts(data, joinLists(own, s.others(ids)))
		}
	}
	s.addMode(modeValues, "values", data)
}

// idsOf returns the ids in a list of requests; known is false where one has none.
func idsOf(list []byte) (ids []string, known bool) {
	for e := range jsonscan.Elements(list) {
		id := text(schema.Field(e, "id"))
		if id == "" {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}

// others writes a list of the requests that wait in the namespace of the event, or at the root in any, but for some.
func (s *said) others(but []string) []byte {
	namespace := s.from.namespace
	if string(namespace) == "[]" {
		namespace = nil
	}
	o := object{'['}
	for _, r := range s.p.waitingIn(namespace, maxInterrupts) {
		if !slices.Contains(but, r.id) {
			o = append(sepList(o), '{')
			o = o.Str("id", r.id).Raw("value", r.payload).End()
		}
	}
	return append(o, ']')
}

// joinLists writes the elements of two lists as one.
func joinLists(a, b []byte) []byte {
	o := object{'['}
	for _, list := range [][]byte{a, b} {
		for e := range jsonscan.Elements(list) {
			o = append(sepList(o), e...)
		}
	}
	return append(o, ']')
}
