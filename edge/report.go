package edge

import (
	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// Report is what a request's log line says of what was read or written for it, and how a stream ends for it.
type Report struct {
	run     string // valid id, once known
	events  int
	seq     schema.Seq   // last delivered or stored
	sent    int64        // bytes of a stream
	dropped int          // events that a slow client was spared
	stream  *boundStream // once it is open

	release func()                         // of the place among the streams; nil when there is none
	endOf   func(error) transport.End      // says the last word about an error in every transport's terms
	done    func(recovered any, err error) // ends the request of a stream that was parked
}

// boundStream is a dialect's stream with the dialect.
type boundStream struct {
	dialect.Stream
	dialect dialect.Dialect
	name    string
}
