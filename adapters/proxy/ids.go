package proxy

import (
	"fmt"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// callIDs are the ids of the calls of one answer. There are servers that count calls anew in each answer, or give all
// of them one id. A call whose id another one of the lane has that still waits for its result gets an id of its own,
// so that the log says which of them a result belongs to; the provider's is beside it.
type callIDs struct {
	given map[string][]string // what became of an id, in the order of the calls of the message
	other map[string]string   // by index: blocks whose id is not the provider's
	used  map[string]bool     // in this answer
}

// distinguish changes the ids of calls that are not the only one with theirs.
func (c *call) distinguish(events []schema.Event) {
	for i := range events {
		e := &events[i]
		switch e.Type {
		case schema.TypeMessageStart:
			c.ids.given, c.ids.other = nil, nil
		case schema.TypeBlockStart:
			c.nameCall(e)
		case schema.TypeToolInputDelta, schema.TypeBlockEnd, schema.TypeToolStart:
			if len(c.ids.other) > 0 {
				c.ids.rename(e)
			}
		case schema.TypeMessageEnd:
			if len(c.ids.other) > 0 {
				c.ids.renameContent(e)
			}
		}
	}
}

// nameCall finds an id for a call that begins.
func (c *call) nameCall(e *schema.Event) {
	all, _ := provider.Parse(e.Payload)
	id := all.Str("call_id")
	if id == "" || all.Get("tool") == nil {
		return
	}
	own := id
	for n := 1; c.isUsed(own); n++ {
		own = fmt.Sprintf("%s~%s_%d", id, c.mint, n)
	}
	if c.ids.used == nil {
		c.ids.used = make(map[string]bool)
	}
	if c.ids.given == nil {
		c.ids.given, c.ids.other = make(map[string][]string), make(map[string]string)
	}
	c.ids.used[own] = true
	c.ids.given[id] = append(c.ids.given[id], own)
	delete(c.ids.other, string(all.Get("index")))
	if own != id {
		c.ids.other[string(all.Get("index"))] = own
		c.ids.rename(e)
	}
}

// isUsed reports whether an id is that of another call.
func (c *call) isUsed(id string) bool {
	if c.ids.used[id] {
		return true
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	return c.lane.open[id] != nil
}

// rename sets the id of an event's call.
func (ids *callIDs) rename(e *schema.Event) {
	all, _ := provider.Parse(e.Payload)
	own, ok := ids.other[string(all.Get("index"))]
	if !ok || all.Get("call_id") == nil {
		return
	}
	given := all.Get("call_id")
	all = all.Set("call_id", provider.Quote(own))
	if e.Type != schema.TypeToolInputDelta {
		all = append(all, provider.Field{Name: "provider_call_id", Value: given})
	}
	e.Payload = all.Encode()
}

// renameContent sets the ids of the calls in a message's content.
func (ids *callIDs) renameContent(e *schema.Event) {
	all, _ := provider.Parse(e.Payload)
	content := provider.Elements(all.Get("content"))
	nth := map[string]int{}
	for i, raw := range content {
		f, _ := provider.Parse(raw)
		id := f.Str("id")
		list := ids.given[id]
		if f.Str("type") != "tool_use" || nth[id] >= len(list) {
			continue
		}
		own := list[nth[id]]
		nth[id]++
		if own != id {
			content[i] = f.Set("id", provider.Quote(own)).Encode()
		}
	}
	if content != nil {
		e.Payload = all.Set("content", provider.List(content)).Encode()
	}
}
