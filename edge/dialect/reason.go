package dialect

import "errors"

// Reason is why a stream or a request ended. What that means on each transport is one table in
// package edge.
type Reason uint8

// The reasons. The zero Reason is none.
const (
	ReasonNone Reason = iota

	// Ends of a stream that has begun.
	ReasonEnded             // the run is over and its terminal event was delivered
	ReasonShutdown          // this node goes away; the run goes on
	ReasonClientGone        // the client closed or vanished (KAI-STREAM-CONN-0001)
	ReasonSlowClient        // the client did not read what was written to it in time
	ReasonOverflow          // more events than the stream allows wait for the client
	ReasonCredentialExpired // the stream's credential has ended; a new one and the cursor continue it

	// Cursors.
	ReasonExpired   // events behind the cursor are no longer kept (KAI-STREAM-CONN-0002)
	ReasonFuture    // the cursor is beyond the newest event
	ReasonBadCursor // not a cursor at all

	// Requests that are refused for what they are.
	ReasonBadID
	ReasonBadRequest
	ReasonUnprocessable // understood, and asks for what there is not
	ReasonMalformed     // not an event, or not what its type demands (KAI-STREAM-PROTO-0001)
	ReasonUnknownType   // KAI-STREAM-PROTO-0002
	ReasonForeignRun    // an event names another run
	ReasonTooLarge
	ReasonUnsupportedMedia
	ReasonUpgrade // a version of WebSocket that is not supported
	ReasonURITooLong
	ReasonTimeout // the request's body did not arrive in time
	ReasonMethod

	// Requests that are refused for who sends them or what they name.
	ReasonUnauthorized
	ReasonForbidden
	ReasonAuthUnavailable // credentials cannot be checked now
	ReasonNotFound        // also what another tenant owns
	ReasonNoRoute         // no path, or no method of gRPC, of this server

	// Requests that are refused for the state of the run.
	ReasonExists
	ReasonSeqMismatch
	ReasonRunEnded
	ReasonState // a command that the run's state forbids
	ReasonKeyReused
	ReasonCondition // If-Match, If-None-Match
	ReasonKeyGone   // the key that encrypts the tenant's content is gone

	// Requests that are refused for how many came before.
	ReasonLimited

	// Trouble on this side.
	ReasonConflict   // other writers were faster, too often
	ReasonUnanswered // the outcome of a write is unknown
	ReasonBusy
	ReasonUnavailable
	ReasonFull        // the log has no room
	ReasonUnsupported // this node has not got what the request needs
	ReasonInternal

	reasonCount
)

// Reasons returns every reason but ReasonNone.
func Reasons() []Reason {
	all := make([]Reason, 0, reasonCount-1)
	for r := ReasonNone + 1; r < reasonCount; r++ {
		all = append(all, r)
	}
	return all
}

// Names of reasons, for logs and metrics; the value of the attribute "reason".
var reasonNames = [reasonCount]string{
	ReasonNone:              "none",
	ReasonEnded:             "ended",
	ReasonShutdown:          "shutdown",
	ReasonClientGone:        "client gone",
	ReasonSlowClient:        "slow client",
	ReasonOverflow:          "overflow",
	ReasonCredentialExpired: "credential expired",
	ReasonExpired:           "expired cursor",
	ReasonFuture:            "future cursor",
	ReasonBadCursor:         "bad cursor",
	ReasonBadID:             "bad id",
	ReasonUnprocessable:     "unprocessable",
	ReasonBadRequest:        "bad request",
	ReasonMalformed:         "malformed",
	ReasonUnknownType:       "unknown type",
	ReasonForeignRun:        "foreign run",
	ReasonTooLarge:          "too large",
	ReasonUnsupportedMedia:  "unsupported media type",
	ReasonUpgrade:           "upgrade required",
	ReasonURITooLong:        "uri too long",
	ReasonTimeout:           "timeout",
	ReasonMethod:            "method not allowed",
	ReasonUnauthorized:      "unauthorized",
	ReasonForbidden:         "forbidden",
	ReasonAuthUnavailable:   "auth unavailable",
	ReasonNotFound:          "not found",
	ReasonNoRoute:           "no such path",
	ReasonExists:            "run exists",
	ReasonSeqMismatch:       "seq mismatch",
	ReasonRunEnded:          "run ended",
	ReasonState:             "command refused",
	ReasonKeyReused:         "key reused",
	ReasonCondition:         "condition not met",
	ReasonKeyGone:           "key gone",
	ReasonLimited:           "rate limited",
	ReasonConflict:          "conflict",
	ReasonUnanswered:        "unanswered",
	ReasonBusy:              "busy",
	ReasonUnavailable:       "unavailable",
	ReasonFull:              "full",
	ReasonUnsupported:       "unsupported",
	ReasonInternal:          "internal",
}

// String returns the reason's name.
func (r Reason) String() string {
	if r < reasonCount {
		return reasonNames[r]
	}
	return reasonNames[ReasonInternal]
}

// What transports report when a frame could not be handed to the client.
var (
	// ErrSlowClient reports that the client did not take what was written within the write time-out.
	ErrSlowClient = errors.New("client does not read")
	// ErrOverflow reports that more events wait for the client than its stream allows.
	ErrOverflow = errors.New("client is too far behind")
	// ErrClientGone reports that the connection is gone.
	ErrClientGone = errors.New("client is gone")
)
