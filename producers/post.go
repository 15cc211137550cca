package producers

import "agentstream/schema"

// Post is one message that asks for its events to be appended to a run, however it arrived. It does not name
// the run: posts are handed on run by run.
type Post struct {
	// Body is one event, NDJSON, or a JSON array (schema.DecodeBatch). It must not be changed while the post is
	// being answered.
	Body []byte
	// Keys are the idempotency keys that came with it. More than one is refused.
	Keys []string
	// Unserved names a condition of the sender that is not served here ("header Nats-TTL"); such a post is
	// refused, because an answer would say that the condition was met. "" for none.
	Unserved string
}

// Answer is the result of a post.
type Answer struct {
	First, Last schema.Seq // of its events
	Events      int
	Root        string   // the run whose numbers these are, where the post named a child of it; "" otherwise
	Replayed    bool     // the answer of an earlier post with the same idempotency key
	Refusal     *Refusal // nil: its events are durable
}

// Refusal is why nothing of a post was stored, or reports that it is unknown whether it was.
type Refusal struct {
	Status  int    // as in HTTP
	Number  int    // of the reason; stable, and unlike JetStream's own error codes
	Code    string // KAI-STREAM-… of native §8 where there is one; from a fixed set
	Message string // for people; it may quote the post
	Line    int    // of the post, from 1; 0: it is not about one
	Field   string // of the event, as a JSON pointer; "" where that is not known
	Retry   int    // seconds after which the same post may succeed; 0: trying again as it is does not help
}
