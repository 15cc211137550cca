package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"agentstream/producers"
	"agentstream/schema"
)

// commandPrefix is the beginning of the type of every command.
const commandPrefix = "command."

// Bounds of what is kept of commands that wait. What has no room is read again when there is some.
const (
	maxCommands     = 4096
	maxCommandBytes = 1 << 20
)

// commandView is what is known of a run as far as commands go: a state machine over its packs. Guarded by its
// owner's lock.
type commandView struct {
	writer string // our own
	serves func(lane string) bool
	logger *slog.Logger
	seen   func(schema.Record) // of the run's own lane; nil: nobody looks

	pos    uint64          // the log's position of the newest pack that was looked at; 0 none
	seq    schema.Seq      // its last event
	state  schema.RunState // after it
	behind bool            // there may be more in the log
	fenced error           // a lane of ours has another owner

	lanes map[string]*laneState
	ended schema.Seq // newest final state of the run itself
	again schema.Seq // the first event after it with which the run goes on; 0: it does not
	queue []waiting
	kept  int     // bytes in queue
	more  waiting // the first command that had no room; those after it are not in queue either. seq 0: none
}

type laneState struct {
	serve  bool
	owner  schema.Lane // newest; of lanes that are ours
	ours   bool
	claim  schema.Seq // our first event
	former bool       // had an owner before us
	taken  schema.Seq // commands up to here have been taken
	ended  schema.Seq // newest final state
}

// waiting is a command that waits.
type waiting struct {
	lane  string
	seq   schema.Seq
	pos   uint64 // of its pack in the log; 0: of the past
	event *schema.Event
}

func (v *commandView) lane(id string) *laneState {
	l := v.lanes[id]
	if l == nil {
		l = &laneState{serve: v.serves(id)}
		v.lanes[id] = l
	}
	return l
}

// What a pack must hold to be looked into. Text in payloads has its quotes escaped.
var (
	typeCommand   = []byte(`"type":"command`)
	typeLifecycle = []byte(`"type":"run.lifecycle"`)
)

// look takes the run's next pack, which begins after seq at most by being partly known.
func (v *commandView) look(p *schema.Pack) {
	if l := v.lane(p.Child); l.serve {
		v.followOwner(l, p)
	}
	seen := v.seen
	if p.Child != "" {
		seen = nil
	}
	if seen != nil || bytes.Contains(p.Body, typeCommand) || bytes.Contains(p.Body, typeLifecycle) {
		for r, err := range p.Records(v.seq) {
			if err != nil {
				v.logger.Warn("commands: an event cannot be read", "err", err)
				break
			}
			v.record(p, r)
			if seen != nil {
				seen(r)
			}
		}
	}
	v.seq, v.state = p.Last(), p.Head.State
	if p.Head.Stored > 0 {
		v.pos = p.Head.Stored
	}
}

// followOwner follows who owns a lane.
func (v *commandView) followOwner(l *laneState, p *schema.Pack) {
	o := p.Head.Lane
	switch {
	case p.Writer == v.writer:
		if !l.ours {
			l.ours, l.claim = true, p.First
		}
		l.owner = o
	case p.Head.Stored == 0:
		l.former = true // of the past; who owned it then is not kept
	case o.Owner == "" || o == l.owner && l.ours:
		// Written beside the owner: by a command, or while the owner was out of sight.
	case l.ours:
		v.fenced = fmt.Errorf("lane %q: owner %s, epoch %d, ours was %d: %w", p.Child, o.Owner, o.Epoch, l.owner.Epoch,
			producers.ErrFenced)
	default:
		l.former = true
	}
}

func (v *commandView) record(p *schema.Pack, r schema.Record) {
	if v.ended > 0 && v.again == 0 && schema.IsFollowUp(string(r.Type), p.Child, r.Payload()) {
		v.again = r.Seq
	}
	switch {
	case string(r.Type) == schema.TypeRunLifecycle:
		s, err := schema.ParseLifecycle(r.Payload())
		if err != nil || !s.State.Final() {
			return
		}
		if v.lane(p.Child).ended = r.Seq; p.Child == "" {
			v.ended, v.again = r.Seq, 0
		}
	case string(r.Type) == schema.TypeCommandsTaken:
		var t struct {
			Through schema.Seq `json:"through"`
		}
		if json.Unmarshal(r.Payload(), &t) == nil && t.Through < r.Seq {
			v.markTaken(p.Child, t.Through)
		}
	case v.more.seq == 0 && v.forUs(p, r):
		v.add(p, r)
	}
}

// forUs reports whether an event is a command for us.
func (v *commandView) forUs(p *schema.Pack, r schema.Record) bool {
	return bytes.HasPrefix(r.Type, []byte(commandPrefix)) && v.lane(p.Child).serve
}

// add lets a command wait. Without room for it, and it may be the only one that is too large, it is noted in
// more.
func (v *commandView) add(p *schema.Pack, r schema.Record) {
	e, err := r.Event()
	if err != nil {
		v.logger.Warn("commands: a command cannot be read", "seq", int64(r.Seq), "err", err)
		return
	}
	at := waiting{lane: p.Child, seq: r.Seq, pos: p.Head.Stored, event: &e}
	if v.over(at) {
		return
	}
	if v.full(&e) {
		v.drop(v.over)
	}
	if len(v.queue) > 0 && v.full(&e) {
		at.event = nil
		v.more = at
		return
	}
	v.kept += lineSize(&e)
	v.queue = append(v.queue, at)
}

func (v *commandView) full(e *schema.Event) bool {
	return len(v.queue) >= maxCommands || v.kept+lineSize(e) > maxCommandBytes
}

// refill looks again at a pack that holds commands for which there was no room, after after. It reports
// whether there is more to look at.
func (v *commandView) refill(p *schema.Pack, after schema.Seq) (more bool) {
	v.more = waiting{}
	for r, err := range p.Records(after) {
		if err != nil || r.Seq > v.seq {
			break // logged when it was looked at first; or not looked at yet
		}
		if v.forUs(p, r) {
			if v.add(p, r); v.more.seq != 0 {
				return false
			}
		}
	}
	if p.Last() >= v.seq {
		return false
	}
	v.more = waiting{seq: p.Last() + 1, pos: p.Head.Stored}
	return true
}

// fate returns what has become of a command, so far as is known.
func (v *commandView) fate(lane, typ string, seq schema.Seq) (taken, settled bool) {
	l := v.lane(lane)
	late := v.ended > 0 && seq > v.ended && (v.again == 0 || seq < v.again) // nobody was there to take it
	return seq <= l.taken, typ != schema.TypeCommandMessage && (late || seq < max(l.ended, v.ended))
}

// over reports whether a command that waits need not any more.
func (v *commandView) over(at waiting) bool {
	taken, settled := v.fate(at.lane, at.event.Type, at.seq)
	return taken || settled
}

// markTaken notes that a lane's commands up to through have been dealt with.
func (v *commandView) markTaken(lane string, through schema.Seq) {
	l := v.lane(lane)
	l.taken = max(l.taken, through)
}

func (v *commandView) remove(seq schema.Seq) {
	v.drop(func(at waiting) bool { return at.seq == seq })
}

func (v *commandView) drop(which func(waiting) bool) {
	v.queue = slices.DeleteFunc(v.queue, func(at waiting) bool {
		gone := which(at)
		if gone {
			v.kept -= lineSize(at.event)
		}
		return gone
	})
}

// first returns the first command that can be handed over, or could if its lane were ours.
func (v *commandView) first() (waiting, *laneState, bool) {
	v.drop(v.over)
	for _, at := range v.queue {
		if l := v.lane(at.lane); l.ours || !v.state.Final() {
			return at, l, true
		}
	}
	return waiting{}, nil, false
}

// lineSize returns the bytes that an event counts for in view.kept.
func lineSize(e *schema.Event) int { return len(e.Payload) + 512 }
