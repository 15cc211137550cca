package nimi

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
)

// Types of the feeds of which the newest state is kept.
const (
	typeProvider = "custom.runtime." + StreamProvider
	typeAccount  = "custom.runtime." + StreamAccount
)

// Truncated is the Form of a request for an account's events whose cursor is older than what is kept.
const Truncated = "truncated"

// maxProviders bounds the providers of a tenant whose state is kept.
const maxProviders = 256

// providers are the newest states, in the order in which the providers were first heard of. None is changed once it is there.
type providers []*runtimev1.AIProviderHealthEvent

// readProvider reads what is fed; nil: it is no state of a provider.
func readProvider(payload []byte) *runtimev1.AIProviderHealthEvent {
	m := &runtimev1.AIProviderHealthEvent{}
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(payload, m) != nil || m.GetProviderName() == "" {
		return nil
	}
	return m
}

func (l *providers) set(payload []byte) {
	m := readProvider(payload)
	if m == nil {
		return
	}
	for i, p := range *l {
		if p.GetProviderName() == m.GetProviderName() {
			(*l)[i] = m
			return
		}
	}
	if len(*l) < maxProviders {
		*l = append(*l, m)
	}
}

// Providers returns the newest states.
func (j *Job) Providers() []*runtimev1.AIProviderHealthEvent { return j.providers }

// Account returns what the account's newest event says of it; one that nobody has fed is anonymous.
func (j *Job) Account() *runtimev1.AccountSessionEvent {
	if j.account == nil {
		return &runtimev1.AccountSessionEvent{State: runtimev1.AccountSessionState_ACCOUNT_SESSION_STATE_ANONYMOUS}
	}
	return j.account
}

// Open appends the current states of providers, or that of the account.
func (j *Job) Open(out *dialect.Frames, after schema.Seq) error {
	switch j.req.Stream {
	case StreamAccount:
		m := proto.CloneOf(j.Account())
		m.EventType, m.Sequence, m.ReplayTruncated = runtimev1.AccountEventType_ACCOUNT_EVENT_TYPE_ACCOUNT_STATUS, uint64(after), j.req.Form == Truncated
		return add(out, m, false)
	case StreamProvider:
	default:
		return nil
	}
	for _, m := range j.providers {
		if err := j.state(out, m); err != nil {
			return err
		}
	}
	return nil
}

// provider makes the frame of a change.
func (j *Job) provider(out *dialect.Frames, r schema.Record) error {
	if string(r.Type) != typeProvider || r.Child != nil {
		return nil
	}
	m := readProvider(r.Payload())
	if m == nil {
		return nil
	}
	return j.state(out, m)
}

// state makes a frame; the numbers are of the stream, from 1.
func (j *Job) state(out *dialect.Frames, m *runtimev1.AIProviderHealthEvent) error {
	j.told++
	c := proto.CloneOf(m)
	c.Sequence = j.told
	return add(out, c, false)
}
