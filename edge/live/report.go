package live

import (
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// Report is what a request's log line says of what was read or written for it, and how a stream ends for it.
type Report struct {
	Run     string // valid id, once known
	Events  int
	Seq     schema.Seq // last delivered or stored
	Sent    int64      // bytes of a stream
	Dropped int        // events that a slow client was spared
	Stream  *Bound     // once it is open

	Release func() // of the place among the streams; nil when there is none
	Ending
}

// Ending is how a stream ends for its request.
type Ending interface {
	EndOf(err error) transport.End   // says the last word about an error in every transport's terms
	Finish(recovered any, err error) // ends the request of a stream that was parked
}

// Bound is a dialect's stream with the dialect.
type Bound struct {
	dialect.Stream
	Dialect     dialect.Dialect
	DialectName string
	KeepAlive   time.Duration                  // silence after which it shows a sign of life; 0: Config.KeepAlive
	CaughtUp    func(schema.Seq) dialect.Frame // sent when the client has everything that there was; nil: nothing is
}
