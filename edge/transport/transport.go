package transport

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"agentstream/edge/dialect"
)

// Sink is where a stream's frames go.
type Sink interface {
	// Write takes frames. They may go out at any time until Flush returns. The frames' bytes are not
	// used once Write has returned.
	Write(frames []dialect.Frame) error
	// Flush pushes what was written to the client and returns the number of bytes that went out since
	// the last call, keep-alives included. After ErrLate the stream is to be ended.
	Flush() (int64, error)
	// KeepAlive shows the client a sign of life that is no frame.
	KeepAlive() error
	// CloseWith sends the last words in the transport's own terms and releases everything. Nothing may be
	// called after it. An error says that the word did not get through.
	CloseWith(e End) error
}

// Notice is the time between the sign that a node goes away, which who watches its health gets, and the end of its
// first stream. Clients may count on 100 ms.
const Notice = 150 * time.Millisecond

// ErrLate reports that the client has taken what was written, but too slowly. The end of the stream still gets through.
var ErrLate = fmt.Errorf("a write took too long: %w", dialect.ErrSlowClient)

// End is why a stream is over and what its client is sent about it, in the words of every transport. The zero End
// breaks off without a word.
type End struct {
	// Clean means that the stream is complete: the body of HTTP ends whole, a gRPC call is OK. Any other breaks
	// off, which no client takes for success.
	Clean bool
	// Last are frames before the end, in the form of the stream's other frames: an event that explains the end,
	// the response of a unary call. One without a token moves no cursor.
	Last []dialect.Frame
	// Close is the WebSocket close code (RFC 6455 §7.4.1); 0: 1000 with Clean, else 1011.
	Close int
	// GRPC is the status code (google.rpc.Code), but with Clean.
	GRPC int
	// Code and Message, as "Code: Message" or the one that there is, are the reason of a WebSocket's close frame,
	// of which 123 bytes pass, and the message of a gRPC status.
	Code, Message string
	// Details of a gRPC status (grpc-status-details-bin), but with Clean.
	Details []*anypb.Any
	// Trailer is metadata of gRPC behind the messages. The value of a name that ends in "-bin" is in base64.
	Trailer http.Header
	// Rest is what is left of ready frames of which TryWrite has taken a part, or nothing. It goes out before all
	// else. Nothing can follow a part without it: the connection is reset.
	Rest []byte
	// Wait means that the client may be slow: it has a write time-out for each 64 KiB of what is left to be written,
	// and another to read what is on its way, before the connection is closed. One that does not read in that time
	// is reset.
	Wait bool
}

// Text joins Code and Message.
func (e End) Text() string {
	switch {
	case e.Code == "":
		return e.Message
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Own returns the connection itself of one that was taken over from the HTTP server, where something stands before it.
func Own(c net.Conn) net.Conn {
	if before, ok := c.(interface{ Detach() net.Conn }); ok {
		return before.Detach()
	}
	return c
}

// Unblocked is a connection with reads and writes that do not wait: see Try, whose rules hold for them.
type Unblocked interface {
	Unblock() bool // begins with them; false: there are none. Nothing may be under way
	TryRead(b []byte) (int, error)
	TryWrite(b []byte) (int, error)
}

// TCP returns the connection of TCP that is below c, if there is one.
func TCP(c net.Conn) (*net.TCPConn, bool) {
	for {
		if tcp, ok := c.(*net.TCPConn); ok {
			return tcp, true
		}
		above, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, false
		}
		c = above.NetConn()
	}
}

// Reset closes a connection at once, from any goroutine. What the kernel still holds for the client is thrown away.
func Reset(c net.Conn) {
	DropUnsent(c)
	_ = c.Close() // whoever uses it finds out
}

// DropUnsent makes Close throw away what the kernel still holds for the client.
func DropUnsent(c net.Conn) {
	if tcp, ok := TCP(c); ok {
		_ = tcp.SetLinger(0)
	}
}
