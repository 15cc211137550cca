package persister

import (
	"encoding/json"
	"time"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// wholeLane is how far a lane is read back for an event that may repeat something. Longer runs are not read from their
// beginning, so that none becomes dear.
const wholeLane = 1024

// LookBack returns the seq from which a lane is read for what an event may repeat, 0 for all of it.
func LookBack(seq schema.Seq) schema.Seq { return seq - min(seq, wholeLane) }

// LaneEvent is a stored event of a lane, or a run.lifecycle of the root, which ends what its children have open.
type LaneEvent struct {
	Seq    schema.Seq
	TS     time.Time
	Type   string
	record schema.Record
}

// LaneEventOf decodes a line of the log. ok is false for a line that is no event.
func LaneEventOf(seq schema.Seq, ts time.Time, typ string, line []byte) (e LaneEvent, ok bool) {
	r, err := schema.ScanLine(line)
	return LaneEvent{seq, ts, typ, r}, err == nil && json.Valid(r.Payload())
}

// Payload returns the event's payload.
func (e *LaneEvent) Payload() []byte { return e.record.Payload() }

// frameIDs are the types of events that begin and end messages and calls, with the member that has the id.
var frameIDs = map[string]string{
	schema.TypeMessageStart: "message_id", schema.TypeMessageEnd: "message_id", schema.TypeToolStart: "call_id",
	schema.TypeToolEnd: "call_id",
}

// FrameID returns the id of the message or of the call that an event begins or ends; "" for other events, and without
// an id.
func FrameID(typ string, payload []byte) string {
	if frameIDs[typ] == "" {
		return ""
	}
	id, _ := jsonscan.Unquote(jsonscan.Fields(nil).Read(payload).Raw(frameIDs[typ]))
	return id
}

// Repeats returns the events that begin or end once more what a lane has, by the rules of schema.Fold: the first
// counts, and an id that begins again in another turn is another one. The events are those of the lane in their order.
func Repeats(lane []LaneEvent) map[schema.Seq]bool {
	var f schema.Fold
	for i := range lane {
		f.AddRecord(lane[i].record)
	}
	counted := make(map[schema.Seq]bool)
	for _, m := range f.Messages {
		counted[m.Start], counted[m.End] = true, true
	}
	for _, c := range f.Calls {
		counted[c.Start], counted[c.End] = true, true
	}
	type frame struct{ typ, id string }
	known, repeats := make(map[frame]bool), make(map[schema.Seq]bool)
	for i := range lane {
		e := &lane[i]
		if frameIDs[e.Type] == "" {
			continue
		}
		of := frame{e.Type, FrameID(e.Type, e.Payload())}
		if known[of] && !counted[e.Seq] {
			repeats[e.Seq] = true
		}
		known[of] = true
	}
	return repeats
}

// CorrectUsage returns the usage of a run when what a lane repeats does not count and the rest does. counted are the
// events whose usage is in it now.
func CorrectUsage(usage schema.Usage, lane []LaneEvent, repeats, counted map[schema.Seq]bool) schema.Usage {
	for i := range lane {
		e := &lane[i]
		if e.Type != schema.TypeMessageEnd || counted[e.Seq] == !repeats[e.Seq] {
			continue
		}
		if u := schema.UsageOf(e.Payload()); repeats[e.Seq] {
			usage = usage.Minus(u)
		} else {
			usage = usage.Plus(u)
		}
	}
	return usage
}
