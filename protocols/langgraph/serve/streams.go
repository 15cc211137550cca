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
func (a *api) streams() (list []protocol.Stream) {
	for _, path := range paths {
		list = append(list, protocol.Stream{
			Stream: dialect.Stream{Name: "events " + path, Pattern: "POST " + path, Transport: dialect.SSE,
				Mode: dialect.ModeD, Shared: true,
				Body: []string{"application/json"}, Backlog: a.cfg.Backlog},
			Prelude: gapPrelude, CaughtUp: catchUpFrame,
		})
	}
	return list
}

// gapPrelude comments on how many records are no longer kept.
func gapPrelude(_ *protocol.Call, at protocol.Seam) ([]dialect.Frame, error) {
	if at.Missed == 0 {
		return nil, nil
	}
	return []dialect.Frame{{Comment: true, Data: fmt.Appendf(nil, "missed %d", at.Missed)}}, nil
}

// catchUpFrame comments that everything which there was has come.
func catchUpFrame(last schema.Seq) dialect.Frame {
	return dialect.Frame{Comment: true, Data: fmt.Appendf(nil, "replayed %d", through(last))}
}

// through is the greatest number that an event of a record may have; 0 before the first.
func through(seq schema.Seq) int64 {
	if seq == 0 {
		return 0
	}
	return langgraph.Number(dialect.Place{Seq: seq, Slot: dialect.MaxSlot})
}
