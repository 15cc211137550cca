package nimi

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// agent shows what a run's states say of its agent: at most one frame of a record.
type agent struct {
	run, form string
	fields    jsonscan.Fields
}

// Project makes the frame of a record.
func (p *agent) Project(out *dialect.Frames, r schema.Record) error {
	if r.Child != nil {
		return nil
	}
	_, ts, _ := r.Envelope()
	at, _ := time.Parse(time.RFC3339Nano, string(ts)) // a zero time is sent
	e := &runtimev1.AgentEvent{EventType: runtimev1.AgentEventType_AGENT_EVENT_TYPE_STATE, Sequence: uint64(r.Seq),
		AgentId: p.run, Timestamp: timestamppb.New(at)}
	now, was := runtimev1.AgentExecutionState(0), runtimev1.AgentExecutionState(0)
	switch string(r.Type) {
	case schema.TypeTurnStart:
		now, was = runtimev1.AgentExecutionState_AGENT_EXECUTION_STATE_CHAT_ACTIVE, runtimev1.AgentExecutionState_AGENT_EXECUTION_STATE_IDLE
	case schema.TypeTurnEnd:
		now, was = runtimev1.AgentExecutionState_AGENT_EXECUTION_STATE_IDLE, runtimev1.AgentExecutionState_AGENT_EXECUTION_STATE_CHAT_ACTIVE
	case schema.TypeRunLifecycle:
		p.fields = p.fields.Read(r.Payload())
		state := schema.RunState(p.fields.Str("state"))
		current := runtimev1.AgentLifecycleStatus_AGENT_LIFECYCLE_STATUS_ACTIVE
		if state.Final() {
			current = runtimev1.AgentLifecycleStatus_AGENT_LIFECYCLE_STATUS_TERMINATED
		} else if state == schema.StatePaused {
			current = runtimev1.AgentLifecycleStatus_AGENT_LIFECYCLE_STATUS_SUSPENDED
		}
		e.EventType = runtimev1.AgentEventType_AGENT_EVENT_TYPE_LIFECYCLE
		e.Detail = &runtimev1.AgentEvent_Lifecycle{Lifecycle: &runtimev1.AgentLifecycleEventDetail{CurrentStatus: current}}
	default:
		return nil
	}
	if now != 0 {
		e.Detail = &runtimev1.AgentEvent_State{State: &runtimev1.AgentStateEventDetail{
			Family:                runtimev1.AgentStateEventFamily_AGENT_STATE_EVENT_FAMILY_EXECUTION_STATE_CHANGED,
			CurrentExecutionState: now, PreviousExecutionState: was, OriginatingTurnId: r.Attribute("turn_id"),
		}}
	}
	if !among(p.form, e.EventType) {
		return nil
	}
	return add(out, e, false)
}
