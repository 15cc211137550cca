package schema

// Turn says whether the root lane of a run works. The newest of its turn.start, turn.end and run.lifecycle decides.
type Turn string

// Turns. "" is that of a run that has said none of these.
const (
	TurnOpen   Turn = "open"   // turn.start, or a lifecycle that says so
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
