package nimi

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Types of the feeds of which the newest state is kept.
const (
	typeProvider = "custom.runtime." + StreamProvider
	typeAccount  = "custom.runtime." + StreamAccount
)

// maxProviders bounds the providers of a tenant whose state is kept.
const maxProviders = 256

// maxModels bounds the models of a provider.
const maxModels = 1024

// providers are the newest states, in the order in which the providers first appeared. None is changed once it is
// there.
type providers []announcement

// announcement is the state of a provider, with the models that it serves.
type announcement struct {
	*runtimev1.AIProviderHealthEvent
	models []string
}

// readProvider reads what is fed; nil: it is no state of a provider.
func readProvider(payload []byte) *runtimev1.AIProviderHealthEvent {
	m := &runtimev1.AIProviderHealthEvent{}
	if FeedJSON.Unmarshal(payload, m) != nil || m.GetProviderName() == "" {
		return nil
	}
	return m
}

func (l *providers) set(payload []byte) {
	m := readProvider(payload)
	if m == nil {
		return
	}
	a := announcement{AIProviderHealthEvent: m}
	list := jsonscan.Fields(nil).Read(payload).Array("models")
	if list != nil {
		for name := range jsonscan.Elements(list) {
			if len(a.models) < maxModels {
				a.models = append(a.models, jsonscan.DecodeString(name))
			}
		}
	}
	for i, p := range *l {
		if p.GetProviderName() == m.GetProviderName() {
			if list == nil {
				a.models = p.models // about whom nothing is new
			}
			(*l)[i] = a
			return
		}
	}
	if len(*l) < maxProviders {
		*l = append(*l, a)
	}
}

// Providers returns the newest states.
func (j *Job) Providers() (list []*runtimev1.AIProviderHealthEvent) {
	for _, p := range j.providers {
		list = append(list, p.AIProviderHealthEvent)
	}
	return list
}

// HasModel reports whether a provider has announced a model. When none has announced any, every model is
// served.
func (j *Job) HasModel(model string) bool {
	none := true
	for _, p := range j.providers {
		if slices.Contains(p.models, model) {
			return true
		}
		none = none && p.models == nil
	}
	return none
}

// Account returns what the account's newest event says of it; one that nobody has fed is anonymous.
func (j *Job) Account() *runtimev1.AccountSessionEvent {
	if j.account == nil {
		return &runtimev1.AccountSessionEvent{State: runtimev1.AccountSessionState_ACCOUNT_SESSION_STATE_ANONYMOUS}
	}
	return j.account
}

// Snapshot returns the Form of a request for an account's events behind a number: the message that they begin with.
func Snapshot(a *runtimev1.AccountSessionEvent, after schema.Seq, truncated bool) (string, error) {
	m := proto.CloneOf(a)
	m.EventType, m.Sequence, m.ReplayTruncated = runtimev1.AccountEventType_ACCOUNT_EVENT_TYPE_ACCOUNT_STATUS, uint64(after), truncated
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return string(b), err
}

// Open appends the current states of providers, or that of the account.
func (j *Job) Open(out *dialect.Frames, _ schema.Seq) error {
	if j.req.Stream == StreamAccount {
		out.Add(dialect.Frame{Event: []byte("event"), Data: []byte(j.req.Form)})
	}
	for i := 0; i < len(j.providers) && j.req.Stream == StreamProvider; i++ {
		if err := j.state(out, j.providers[i].AIProviderHealthEvent); err != nil {
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
	if m := readProvider(r.Payload()); m != nil {
		return j.state(out, m)
	}
	return nil
}

// state makes a frame; the numbers are of the stream, from 1.
func (j *Job) state(out *dialect.Frames, m *runtimev1.AIProviderHealthEvent) error {
	j.told++
	c := proto.CloneOf(m)
	c.Sequence = j.told
	return add(out, c, false)
}
