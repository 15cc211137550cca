package serve

import (
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
)

// paths are where a thread's events are, by POST and on a socket (§1.2).
var paths = []string{"/threads/{run}/stream/events", "/threads/{run}/stream"}

// streams are those of a thread's events.
func (a *api) streams() (list []stream) {
	for _, path := range paths {
		list = append(list, stream{
			Stream: dialect.Stream{Name: "events " + path, Pattern: "POST " + path, Transport: dialect.SSE, Mode: dialect.ModeD, Shared: true,
				Body: []string{"application/json"}, Backlog: a.cfg.Backlog},
			own: protocol.Stream{
				Missed:   func(records schema.Seq) string { return fmt.Sprintf("missed %d", records) },
				Replayed: func(last schema.Seq) string { return fmt.Sprintf("replayed %d", through(last)) },
			},
		})
	}
	return list
}

// through is the greatest number that an event of a record may have; 0 before the first.
func through(seq schema.Seq) int64 {
	if seq == 0 {
		return 0
	}
	return langgraph.Number(dialect.Place{Seq: seq, Slot: dialect.MaxSlot})
}
