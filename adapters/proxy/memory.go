package proxy

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// memory is what a lane's calls have emitted so far, as far as it decides what is new in the next request.
// Requests repeat the whole conversation.
type memory struct {
	todo  []toolCall // that have no result yet, the oldest first
	asked [32]byte   // the user's message that was emitted last
	again bool       // it has not been answered: a request that ends with it is a repeat
}

type toolCall struct{ id, tool string }

// maxOpenCalls bounds the calls of one lane that are remembered; the oldest is forgotten first.
const maxOpenCalls = 1024

// see remembers the content of an event.
func (m *memory) see(e *schema.Event) {
	switch e.Type {
	case schema.TypeToolStart:
		all, _ := provider.Parse(e.Payload)
		if len(m.todo) == maxOpenCalls {
			m.todo = slices.Delete(m.todo, 0, 1)
		}
		m.todo = append(m.todo, toolCall{all.Str("call_id"), all.Str("tool")})
	case schema.TypeToolEnd:
		all, _ := provider.Parse(e.Payload)
		m.answered(all.Str("call_id"))
	case schema.TypeMessageEnd:
		if all, _ := provider.Parse(e.Payload); all.Get("error") == nil {
			m.again = false
		}
	}
}

// answered takes a call out that has its result. ok is false when it is not known.
func (m *memory) answered(id string) (ok bool) {
	for i, c := range m.todo {
		if c.id == id {
			m.todo = slices.Delete(m.todo, i, i+1)
			return true
		}
	}
	return false
}

// oldest returns the first call of a tool, for providers whose calls have no ids.
func (m *memory) oldest(tool string) string {
	for _, c := range m.todo {
		if c.tool == tool {
			return c.id
		}
	}
	return ""
}

// fresh reports whether a user's message has not been emitted yet. index is where in the request it stands,
// scope what the request continues, last that nothing follows it there.
func (m *memory) fresh(content []byte, index int, scope string, last bool) bool {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %s", index, scope, content))
	if m.asked == sum && (m.again || !last) {
		return false
	}
	m.asked, m.again = sum, true
	return true
}
