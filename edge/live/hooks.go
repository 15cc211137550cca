package live

import (
	"time"

	"agentstream/edge/dialect"
)

// Hooks are called at what can be counted. nil is off. They are called from many goroutines and must
// not block. Arguments come from fixed sets, fit for labels, except numbers.
type Hooks struct {
	StreamOpened func(dialect string, transport dialect.Transport)
	StreamClosed func(dialect string, transport dialect.Transport, reason dialect.Reason)
	EventsSent   func(dialect string, events int, bytes int64) // after each write to a client
	KeptAlive    func(dialect string)
	Dropped      func(dialect string, events int) // deltas that a slow client was spared, when its stream ends
	Ingested     func(events int)
	// IngestRefused is called for each request and each post that was to write events and did not.
	IngestRefused func(reason dialect.Reason)
	BodyBytes     func(held int64)                                   // what bodies take of Config.BodyMemory, whenever that changes
	RequestDone   func(route string, status int, took time.Duration) // streams too
}
