package protocol

import (
	"agentstream/edge/live"
	"agentstream/edge/transport"
)

// Detached is the error of a route whose answer goes on when it has returned, as long as the client sends.
type Detached struct {
	Life *live.Life // which is not bound to the request
	// Here is the answer; nil: Apart makes it, on the connection, which is taken over from the HTTP server.
	Here  Upload
	Apart func(*transport.Duplex) Upload
}

// Upload is an answer while the client sends. One goroutine uses it.
type Upload interface {
	// ReadError is the error for one of reading what the client sends.
	ReadError(err error) error
	// Feed takes what was read, and may change it. It does not keep it.
	Feed(b []byte) (Progress, error)
	// Complete ends the answer. err is why nothing more is taken, an error of ReadError or of Feed; nil is the client's
	// end. The error is the call's.
	Complete(err error) error
	// Leave is called at last, whatever has happened. Nothing is written behind it.
	Leave()
}

// Progress is how far the messages of a client have come.
type Progress struct {
	Whole int  // messages that have come whole
	Begun bool // another one has begun
}

// Error makes a Detached an error, which no client sees.
func (*Detached) Error() string { return "the answer goes on by itself" }
