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

// Receipt answers what a client has published: see publish.Receipt. With a Code it is a refusal.
type Receipt struct {
	Line        int
	Run, Root   string
	First, Last schema.Seq
	Replayed    bool

	Code, Message, Field string
	Retry                int // seconds
}
