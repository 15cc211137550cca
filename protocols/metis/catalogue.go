package metis

import (
	"slices"
	"strings"
)

// kind is a type of events: its place in the catalogue.
type kind uint8

// The types, in the order in which the events of one record come as a rule: Projector.beginEvent. own is every type
// that is in no family.
const (
	own kind = iota
	sessionCreated
	sessionResumed
	turnStarted
	routeDecided
	llmCallStarted
	messageStart
	thinkingDelta
	textDelta
	toolUseStart
	toolUseInputDelta
	toolUseEnd
	messageComplete
	llmCallCompleted
	llmCallFailed
	toolCalled
	confirmationRequested
	confirmationResolved
	delegateStarted
	toolCompleted
	toolFailed
	delegateCompleted
	delegateFailed
	turnCompleted
	turnCancelled
	sessionEnded
	gapDetected
	published // and all behind it: types that the log has no words for
)

// actor is who does what an event says.
type actor uint8

const (
	user actor = iota
	agent
	system
	tool
	worker
)

var actors = [...]string{user: "user", agent: "agent", system: "system", tool: "tool", worker: "worker"}

// Classes of sensitivity, the most private first.
const (
	private      = "private"
	pseudonymous = "pseudonymous"
	aggregatable = "aggregatable"
)

// entry is what the catalogue says of a type.
type entry struct {
	name  string
	floor string // the most private class that it may have
	actor actor  // outside workers
	chat  bool   // preset:chat has it
}

// catalogue has the types of both families, those that are stored and those that stream (streaming protocol 5.3,
// catalog 6).
var catalogue = func() []entry {
	all := []entry{
		own:                   {"", private, agent, false},
		sessionCreated:        {"session.created", pseudonymous, system, false},
		sessionResumed:        {"session.resumed", pseudonymous, system, false},
		turnStarted:           {"turn.started", private, user, true},
		routeDecided:          {"route.decided", pseudonymous, system, true},
		llmCallStarted:        {"llm.call_started", private, agent, true},
		messageStart:          {"message.start", private, agent, true},
		thinkingDelta:         {"thinking.delta", private, agent, true},
		textDelta:             {"text.delta", private, agent, true},
		toolUseStart:          {"tool.use_start", private, agent, true},
		toolUseInputDelta:     {"tool.use_input_delta", private, agent, true},
		toolUseEnd:            {"tool.use_end", private, agent, true},
		messageComplete:       {"message.complete", private, agent, true},
		llmCallCompleted:      {"llm.call_completed", pseudonymous, agent, true},
		llmCallFailed:         {"llm.call_failed", pseudonymous, agent, true},
		toolCalled:            {"tool.called", private, agent, true},
		confirmationRequested: {"tool.confirmation_requested", private, system, true},
		confirmationResolved:  {"tool.confirmation_resolved", private, user, true},
		delegateStarted:       {"delegate.started", pseudonymous, system, true},
		toolCompleted:         {"tool.completed", private, tool, true},
		toolFailed:            {"tool.failed", private, tool, true},
		delegateCompleted:     {"delegate.completed", pseudonymous, system, true},
		delegateFailed:        {"delegate.failed", pseudonymous, system, true},
		turnCompleted:         {"turn.completed", pseudonymous, agent, true},
		turnCancelled:         {"turn.cancelled", pseudonymous, user, true},
		sessionEnded:          {"session.ended", pseudonymous, system, false},
		gapDetected:           {"bus.gap_detected", pseudonymous, system, false},
	}
	for _, more := range []entry{
		{"tool.input_invalid", pseudonymous, system, true},
		{"memory.eviction", private, system, true},
		{"memory.updated", private, agent, true},
		{"feedback.explicit", aggregatable, user, true},
		{"feedback.implicit", aggregatable, system, true},
		{"route.overridden pattern.override_dismissed", pseudonymous, user, false},
		{"skill.loaded skill.created skill.modified skill.search", pseudonymous, agent, false},
		{"routing.policy_invalid routing.provider_unavailable routing.provider_recovered provider.degraded",
			pseudonymous, system, false},
		{"pattern.recorded pattern.matched pattern.evicted eval.started eval.completed eval.failed", pseudonymous,
			system, false},
		{"bus.subscriber_registered bus.subscriber_unregistered trace.swept quota.alert", pseudonymous, system, false},
		{"gateway.key_issued gateway.key_revoked gateway.key_rotated gateway.auth_failed gateway.quota_exceeded",
			pseudonymous, system, false},
		{"analytics.user_exported analytics.user_forgotten", pseudonymous, system, false},
	} {
		for _, more.name = range strings.Fields(more.name) {
			all = append(all, more)
		}
	}
	return all
}()

// Types returns the names of all types that a filter may name, in the order of the catalogue.
func Types() []string { return names(func(entry) bool { return true }) }

func names(want func(entry) bool) (all []string) {
	for _, e := range catalogue[own+1:] {
		if want(e) {
			all = append(all, e.name)
		}
	}
	return all
}

// kindOf returns the kind with a name; own when there is none.
func kindOf(name string) kind {
	return kind(max(0, slices.IndexFunc(catalogue, func(e entry) bool { return e.name == name })))
}
