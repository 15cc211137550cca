package live

import (
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Hooks are called at what can be counted. nil is off. They are called from many goroutines and must
// not block. Arguments come from fixed sets, fit for labels, except numbers.
type Hooks struct {
	StreamOpened func(dialect string, transport dialect.Transport)
	RunOpened    func(caller auth.Caller, run, dialect string) // a stream of it, or a subscription in a conversation
	StreamClosed func(dialect string, transport dialect.Transport, reason dialect.Reason)
	EventsSent   func(dialect string, events int, bytes int64) // after each write to a client
	KeptAlive    func(dialect string)
	Dropped      func(dialect string, events int) // deltas that a slow client was spared, when its stream ends
	Ingested     func(events int)
	// IngestRefused is called for each request and each post that was to write events and did not.
	IngestRefused func(reason dialect.Reason)
	BodyBytes     func(held int64) // what bodies take of Config.BodyMemory, whenever that changes
	RequestOpened func()
	RequestDone   func(RequestEnd) // streams too
	// Delivered is called after live records were written to clients that get the same bytes, once for all of
	// them: after is the age of the oldest by its own time. Records of another time, as imports have, are left
	// out.
	Delivered func(dialect string, after time.Duration)
}

// RequestEnd is a request that is over.
type RequestEnd struct {
	Route  string
	Status int
	Took   time.Duration
	Stream bool   // it opened a stream
	ID     string // of the request
	Run    string // "" where it is about none
	Tenant string // "" while nobody was let in
	Events int    // that it stored, or its stream delivered
	Sent   int64  // bytes of the answer
}

// noteDelivery calls the hook for records of which the oldest is r.
func (h *Hooks) noteDelivery(name string, r schema.Record) {
	if h.Delivered == nil {
		return
	}
	born, ok := r.Time()
	if !ok {
		return
	}
	if after := time.Since(born); after >= 0 && after < oldestDelivery {
		h.Delivered(name, after)
	}
}

// oldestDelivery is the age from which on a record's time is not when it was published.
const oldestDelivery = 10 * time.Minute
