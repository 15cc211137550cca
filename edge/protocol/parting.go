package protocol

import (
	"agentstream/edge/live"
	"agentstream/edge/transport"
)

// Parting is the error of a route whose answer goes on without the HTTP server, on a goroutine of its own, when the server's has
// ended: Carry is called with the connection, and ends it. Its error is the call's.
type Parting struct {
	Life  *live.Life
	Carry func(*transport.Duplex) error
}

// Error makes a Parting an error, which no client sees.
func (*Parting) Error() string { return "the answer goes on by itself" }
