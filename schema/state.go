package schema

import (
	"encoding/json"
	"fmt"

	"agentstream/schema/jsonscan"
)

// RunState is the state of a run.lifecycle event (native §3.7).
type RunState string

// The states. Only the last three are final.
const (
	StatePlanning         RunState = "planning"
	StateAwaitingApproval RunState = "awaiting_approval"
	StateRunning          RunState = "running"
	StatePaused           RunState = "paused"
	StateRedirecting      RunState = "redirecting"
	StateDone             RunState = "done"
	StateAborted          RunState = "aborted"
	StateError            RunState = "error"
)

// Final reports whether the run is over: done, aborted or error.
func (s RunState) Final() bool { return s == StateDone || s == StateAborted || s == StateError }

func (s RunState) valid() bool {
	switch s {
	case StatePlanning, StateAwaitingApproval, StateRunning, StatePaused, StateRedirecting,
		StateDone, StateAborted, StateError:
		return true
	}
	return false
}

// Lifecycle is the payload of run.lifecycle.
type Lifecycle struct {
	State  RunState `json:"state"`
	Reason *string  `json:"reason"`
}

// ParseLifecycle reads the payload of run.lifecycle; the error wraps ErrMalformed. Names are taken
// as they are written: a field "State" is not the state, or the log and its readers in other
// languages would disagree on whether the run is over.
func ParseLifecycle(payload []byte) (Lifecycle, error) {
	var l Lifecycle
	if !json.Valid(payload) {
		return l, fmt.Errorf("the payload of run.lifecycle is %s: %w", syntaxError(payload), ErrMalformed)
	}
	err := eachField(payload, func(name string, v []byte) error {
		switch name {
		case "state":
			s, err := unquote(v)
			l.State = RunState(s)
			return err
		case "reason":
			if l.Reason = nil; v[0] == 'n' {
				return nil
			}
			s, err := unquote(v)
			l.Reason = &s
			return err
		}
		return nil
	})
	if err != nil {
		return Lifecycle{}, fmt.Errorf("the payload of run.lifecycle has a field that is %w", err)
	}
	if !l.State.valid() {
		return Lifecycle{}, fmt.Errorf("%s is not a state of a run: %w", quote(string(l.State)), ErrMalformed)
	}
	return l, nil
}

// ChildOfSpawn returns the child of a child.spawn's payload, "" when that is not the id of a run. Names are
// read as they are written, as by ParseLifecycle.
func ChildOfSpawn(payload []byte) (child string) {
	if !json.Valid(payload) {
		return ""
	}
	err := eachField(payload, func(name string, v []byte) (err error) {
		if name == "child_id" {
			child, err = unquote(v)
		}
		return err
	})
	if err != nil || ValidRunID(child) != nil {
		return ""
	}
	return child
}

// Head is what the log knows of a run after its newest pack. A writer needs nothing else to go on,
// and a reader nothing else to know where the end is. The zero Head is a run that does not exist.
type Head struct {
	Last   Seq      // seq of the newest event; 0 when there is none
	LastID string   // id of the newest event
	Day    string   // UTC day on which the run's first pack was written, YYYYMMDD; constant per run
	State  RunState // last lifecycle state of the root; "" before the first
	Lane   Lane     // owner of the lane that was asked for
	Stored uint64   // the log's own position of the newest pack, for compare-and-set; 0 none

	// Root is the run in whose log the events of this id belong: it was spawned there, and has no log of its own.
	// Stored is then the position of the message that records it, RootAt its time in milliseconds since 1970, and Last
	// is 0. Not stored in packs.
	Root   string
	RootAt int64

	Held string // writer for whom the others of the run wait, by a message after the newest pack, at Stored; not stored

	Generation uint64 // of the log that was read: positions of one mean nothing in another; not stored
}

// Lane is who may write a run's own events or one child's. Taking a lane over means writing with
// a higher epoch; a writer that sees a higher one than its own is stale. The zero Lane has no owner.
type Lane struct {
	Owner string
	Epoch uint64
}

// HasEvents reports whether the run has at least one event.
func (h Head) HasEvents() bool { return h.Last > 0 }

// Advance moves the head over one more event, which gets the next seq. payload is looked at for run.lifecycle, and
// for what follows the end of a run. The error wraps ErrEnded when the run is over and takes the event neither as a
// follow-up (see Reopens) nor as a late one: its watchers have gone.
func (h *Head) Advance(typ, child, id string, payload []byte) error {
	if h.State.Final() && !IsFollowUp(typ, child, payload) {
		if !late(typ, child) {
			return fmt.Errorf("%w in state %s and takes no %s", ErrEnded, h.State, typ)
		}
		h.Follow(id)
		return nil
	}
	switch typ {
	case TypeRunLifecycle:
		l, err := ParseLifecycle(payload)
		if err != nil {
			return err
		}
		if child == "" {
			h.State = l.State
		}
	case TypeCommandMessage:
		if h.State.Final() {
			h.State = StatePlanning
		}
	}
	h.Follow(id)
	return nil
}

// Follow moves the head over one more event that changes nothing but the run's newest number.
func (h *Head) Follow(id string) {
	h.Last++
	h.LastID = id
}

// IsFollowUp reports whether an event is a follow-up, with which a run that is over goes on: a message to the
// run itself, or a lifecycle of the root in a state that is not final. A message of the system is none, because
// no agent answers it.
func IsFollowUp(typ, child string, payload []byte) bool {
	switch {
	case child != "":
		return false
	case typ == TypeCommandMessage:
		return !OfSystem(payload)
	case typ == TypeRunLifecycle:
		l, err := ParseLifecycle(payload)
		return err == nil && !l.State.Final()
	}
	return false
}

// OfSystem reports whether a command.message is of the system: something to know, which nobody answers.
func OfSystem(payload []byte) bool {
	role := Field(payload, "role")
	return len(role) > 0 && role[0] == '"' && jsonscan.DecodeString(role) == roleSystem
}

const roleSystem = "system"

// late reports whether an event that is no follow-up may follow the end of a run.
func late(typ, child string) bool {
	if typ == TypeCommandMessage {
		return child == ""
	}
	i, ok := catalogueIndex[typ]
	return ok && catalogue[i].Late
}

// Turn is whether the root lane of a run works. The newest of its turn.start, turn.end and run.lifecycle decides.
type Turn string

// Turns. "" is that of a run without any of these events.
const (
	TurnOpen   Turn = "open"   // turn.start, or a lifecycle that is not final
	TurnHeld   Turn = "held"   // paused, or awaiting approval
	TurnClosed Turn = "closed" // turn.end, or a final lifecycle
)

// TurnOf reads an event of the root lane. stop is the stop_reason of a turn.end, and the state of a final lifecycle. ok
// is false for an event that does not decide, and for a lifecycle that cannot be read.
func TurnOf(typ string, payload []byte) (turn Turn, stop string, ok bool) {
	switch typ {
	case TypeTurnStart:
		return TurnOpen, "", true
	case TypeTurnEnd:
		return TurnClosed, stopReason(payload), true
	case TypeRunLifecycle:
		l, err := ParseLifecycle(payload)
		switch {
		case err != nil:
			return "", "", false
		case l.State.Final():
			return TurnClosed, string(l.State), true
		case l.State == StatePaused || l.State == StateAwaitingApproval:
			return TurnHeld, "", true
		}
		return TurnOpen, "", true
	}
	return "", "", false
}

// Stop is what the stop_reason of a turn.end says of its turn.
type Stop uint8

// Stops.
const (
	StopWell        Stop = iota // the turn came to its end; also what nobody knows, and what models say of a message's end
	StopCancelled               // somebody ended it
	StopInterrupted             // it was interrupted: cancelled, or it has asked something that it does not wait for
	StopFailed
)

// ReadStop reads a stop_reason. Agents write what their frameworks say.
func ReadStop(reason string) Stop {
	switch reason {
	case "cancelled", "canceled", "aborted":
		return StopCancelled
	case "interrupted":
		return StopInterrupted
	case "error", "failed", "retries_exhausted":
		return StopFailed
	}
	return StopWell
}

// stopReason returns "" where a payload has none that can be read.
func stopReason(payload []byte) (stop string) {
	_ = eachField(payload, func(name string, v []byte) error { // a damaged payload has none
		if name == "stop_reason" {
			stop, _ = unquote(v)
		}
		return nil
	})
	return stop
}
