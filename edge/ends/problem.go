package ends

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// Problem describes a refusal for the client. Only reasons that are about the request itself show
// the error's text; the rest stays in the log.
func Problem(reason dialect.Reason, err error) dialect.Problem {
	out := OutcomeOf(reason)
	p := dialect.Problem{Reason: reason, Status: out.Status, Code: out.Code, Message: out.Message}
	var part *producers.PartialError
	if errors.As(err, &part) {
		p.Stored = part.Stored
		err = part.Err
	}
	var batch *schema.BatchError
	if errors.As(err, &batch) {
		p.Line = batch.Line
		err = batch.Err
	}
	var at *FieldError
	if errors.As(err, &at) {
		p.Field = at.Field
	}
	var named interface {
		error
		Field() string
	}
	if errors.As(err, &named) { // a parameter, in the dialect's words
		p.Field = named.Field()
	}
	var coded interface {
		error
		ProblemCode() string
	}
	if errors.As(err, &coded) { // in the protocol's words
		p.Named = coded.ProblemCode()
	}
	var pos *PositionError
	if errors.As(err, &pos) {
		p.Last = pos.Last
	}
	var gone *fanout.ExpiredError
	if errors.As(err, &gone) {
		p.First = gone.First
	}
	if out.Detail && err != nil {
		p.Message = Clip(wording(err))
	}
	var said interface {
		error
		Words() string
	}
	if errors.As(err, &said) && out.Status < 500 {
		p.Message = Clip(said.Words())
	}
	if part != nil {
		p.Message = fmt.Sprintf("the first %d of %d events are stored; %s", part.Stored, part.Of, p.Message)
	}
	return p
}

// RetryAfter is after how many seconds the same request may be answered otherwise; 0: it will not be.
func RetryAfter(reason dialect.Reason, err error) int {
	if over := new(LimitError); errors.As(err, &over) {
		return over.Seconds()
	}
	return OutcomeOf(reason).RetryAfter
}

// OtherRun returns the error of a caller whose credential is for the run only, and who asks for another, which is not
// there for it.
func OtherRun(only string) error {
	return fmt.Errorf("%w, %s alone: %w", auth.ErrOtherRun, only, fanout.ErrNotFound)
}

// PositionError adds to a refused cursor or condition where the log is.
type PositionError struct {
	Last schema.Seq
	Err  error
}

func (e *PositionError) Error() string { return e.Err.Error() }
func (e *PositionError) Unwrap() error { return e.Err }

// classes are the errors that say of which kind a refusal is, as its code does.
var classes = []error{schema.ErrMalformed, schema.ErrBadCursor, dialect.ErrBadRequest, dialect.ErrUnprocessable}

// trail is how the packages that an error has come through begin what they were doing.
var trail = regexp.MustCompile(`^(auth|blob|body|fanout|grpc|live|natsjs|natskit|poll|producers|rest|schema|ws): `)

// wording returns what an error says of a request, in one sentence: neither the way that the error came, nor after
// what is wrong of which kind that is.
func wording(err error) string {
	for inner := errors.Unwrap(err); inner != nil && trail.MatchString(err.Error()); inner = errors.Unwrap(err) {
		err = inner
	}
	text := trail.ReplaceAllString(err.Error(), "")
	for _, class := range classes {
		text = strings.TrimSuffix(text, ": "+class.Error())
	}
	return text
}

// maxMessage bounds what an error repeats of a request, in bytes.
const maxMessage = 500

// Clip cuts a text that is too long for an error, at a character.
func Clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// LimitError refuses what is over a tenant's limit. It wraps ErrLimited.
type LimitError struct {
	What string
	Verb string        // what the tenant does too much; "": send
	Wait time.Duration // until the same may be taken
}

func (e *LimitError) Error() string {
	return "more " + e.What + " than this tenant may " + cmp.Or(e.Verb, "send")
}
func (e *LimitError) Unwrap() error { return ErrLimited }

// Words are for the client.
func (e *LimitError) Words() string { return e.Error() }

// Seconds is the wait as Retry-After has it.
func (e *LimitError) Seconds() int { return int(max(1, (e.Wait+time.Second-1)/time.Second)) }

// FieldError is which field of an event is wrong, as a JSON pointer (RFC 6901).
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// ErrNoRuns reports that a node keeps no list of runs.
var ErrNoRuns = errors.New("no list of runs")

// ErrRunBlobs reports that a run has as many blobs as it may, or as large ones.
var ErrRunBlobs = errors.New("the run has as many blobs as it may")

// ErrDamaged reports that a blob is not what was put.
var ErrDamaged = errors.New("the blob is not what was put")
