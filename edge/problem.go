package edge

import (
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
	"errors"
	"fmt"
	"time"
)

// problem describes a refusal for the client. Only reasons that are about the request itself show
// the error's text; the rest stays in the log.
func problem(reason dialect.Reason, err error) dialect.Problem {
	out := OutcomeOf(reason)
	p := dialect.Problem{Reason: reason, Status: out.Status, Code: out.Code, Message: out.Message}
	var part *producers.PartialError
	if errors.As(err, &part) {
		p.Stored = part.Stored
	}
	var batch *schema.BatchError
	if errors.As(err, &batch) {
		p.Line = batch.Line
		err = batch.Err
	}
	var at *fieldError
	if errors.As(err, &at) {
		p.Field = at.field
	}
	var named interface {
		error
		Field() string
	}
	if errors.As(err, &named) { // a parameter, in the dialect's words
		p.Field = named.Field()
	}
	var pos *positionError
	if errors.As(err, &pos) {
		p.Last = pos.last
	}
	var gone *fanout.ExpiredError
	if errors.As(err, &gone) {
		p.First = gone.First
	}
	if out.Detail && err != nil {
		p.Message = clip(err.Error())
	}
	var said interface {
		error
		Words() string
	}
	if errors.As(err, &said) && out.Status < 500 {
		p.Message = clip(said.Words())
	}
	if part != nil {
		p.Message = fmt.Sprintf("the first %d of %d events are stored: %s", part.Stored, part.Of, p.Message)
	}
	return p
}

// retryAfter is after how many seconds the same request may be answered otherwise; 0: it will not be.
func retryAfter(reason dialect.Reason, err error) int {
	if over := new(limitError); errors.As(err, &over) {
		return over.seconds()
	}
	return OutcomeOf(reason).RetryAfter
}

// positionError adds to a refused cursor or condition where the log is.
type positionError struct {
	last schema.Seq
	err  error
}

func (e *positionError) Error() string { return e.err.Error() }
func (e *positionError) Unwrap() error { return e.err }

// maxMessage bounds what an error tells of a request, in bytes.
const maxMessage = 500

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return s[:maxMessage] + "…"
}

// limitError refuses what is over a tenant's limit. It wraps errLimited.
type limitError struct {
	what string
	wait time.Duration // until the same may be taken
}

func (e *limitError) Error() string { return "more " + e.what + " than this tenant may send" }
func (e *limitError) Unwrap() error { return errLimited }

// seconds is the wait as Retry-After has it.
func (e *limitError) seconds() int { return int(max(1, (e.wait+time.Second-1)/time.Second)) }

// fieldError says which field of an event is wrong, as a JSON pointer (RFC 6901).
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// ErrNoRuns reports that a node keeps no list of runs.
var ErrNoRuns = errors.New("no list of runs")

// errRunBlobs reports that a run has as many blobs as it may, or as large ones.
var errRunBlobs = errors.New("the run has as many blobs as it may")

// errDamaged reports that a blob is not what was put.
var errDamaged = errors.New("the blob is not what was put")
