package transport

import (
	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Sink is where a stream's frames go.
type Sink interface {
	// Write takes frames. They may go out at any time until Flush returns. The frames' bytes are not
	// used once Write has returned.
	Write(frames []dialect.Frame) error
	// Flush pushes what was written to the client and gives the number of bytes that went out since
	// the last call, keep-alives included.
	Flush() (int64, error)
	// KeepAlive shows the client a sign of life that is no frame.
	KeepAlive() error
	// End says the last word in the transport's own terms and lets go of everything. Nothing may be
	// called after it. An error says that the word did not get through.
	End(e End) error
}

// End is why a stream is over, in the words of every transport (ends.Outcome).
type End struct {
	Clean   bool   // the stream is complete
	Close   int    // WebSocket close code (RFC 6455 §7.4.1)
	GRPC    int    // status code (google.rpc.Code); 0 with Clean
	Code    string // KAI-STREAM-… or the server's own word
	Message string // for people
	// Where a cursor could not be served: the first event that is kept, the newest there is; 0: not said.
	FirstSeq, LastSeq schema.Seq
	// Last is a last frame that explains the end, where the table of ends wants one; nil: none. It
	// has no token, so that it moves no cursor.
	Last *dialect.Frame
}
