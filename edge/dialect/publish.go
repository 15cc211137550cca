package dialect

import "agentstream/schema"

// Publishing is a dialect whose clients publish over gRPC.
type Publishing interface {
	// AppendPublished appends the event that a message holds, as one line of JSON with run_id, and with key where there is
	// one. The error wraps ErrBadRequest.
	AppendPublished(dst, message []byte) ([]byte, error)
	// AppendReceipt appends the message that holds a receipt.
	AppendReceipt(dst []byte, r Receipt) []byte
}

// Receipt answers lines of one run: Last-First+1 of them, the newest of which is Line, are stored with these numbers.
// With a Code it refuses Line alone.
type Receipt struct {
	Line        int
	Run         string // "" when the line does not name one
	First, Last schema.Seq
	Root        string // the run whose numbers these are, where Run is a child of it
	Replayed    bool   // it is what was stored when the line came first

	Status               int // of HTTP
	Code, Message, Field string
	Retry                int // seconds
}
