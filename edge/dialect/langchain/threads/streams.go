package threads

import (
	"agentstream/edge/dialect"
)

// paths are where a thread's events are, by POST and on a socket (§1.2).
var paths = []string{"/threads/{run}/stream/events", "/threads/{run}/stream"}

func (a *api) streams() (list []stream) {
	for _, path := range paths {
		list = append(list, stream{Stream: dialect.Stream{Name: "events " + path, Pattern: "POST " + path, Transport: dialect.SSE,
			Mode: dialect.ModeD, Shared: true, Body: []string{"application/json"}, Backlog: a.cfg.Backlog}})
	}
	return list
}
