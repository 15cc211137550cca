package dialect

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"agentstream/schema"
)

// Problem is a refused request, for AppendError. Fields that do not apply are zero.
type Problem struct {
	Reason    Reason
	Status    int        // HTTP status
	Code      string     // KAI-STREAM-… where the native protocol has one (native §8)
	Named     string     // the code that the protocol itself has given it, by an error with a method Named; "": none
	Message   string     // for people; never holds another caller's data
	Line      int        // line of an NDJSON body or position in a JSON array, from 1
	Field     string     // JSON pointer into the event
	First     schema.Seq // first seq that is still kept, with ReasonExpired, when known
	Last      schema.Seq // newest seq, with ReasonFuture, ReasonState and ReasonCondition, when known
	Stored    int        // events of a refused batch, from its first, that are stored all the same
	RequestID string
}

// AppendJSON appends the problem in the form of the native protocol and of routes that belong to no
// dialect:
//
//	{"error":{"code":"…","message":"…","line":3,"field":"/payload/text","request_id":"…"}}
//
// with first_seq and last_seq where a cursor is meant, and stored where a part of a batch is. Fields that do not
// apply are absent.
func (p Problem) AppendJSON(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"error":{"code":`...), p.Code)
	dst = appendQuoted(append(dst, `,"message":`...), p.Message)
	if p.Line > 0 {
		dst = strconv.AppendInt(append(dst, `,"line":`...), int64(p.Line), 10)
	}
	if p.Field != "" {
		dst = appendQuoted(append(dst, `,"field":`...), p.Field)
	}
	dst = appendSeq(dst, `,"first_seq":`, p.First)
	dst = appendSeq(dst, `,"last_seq":`, p.Last)
	if p.Stored > 0 {
		dst = strconv.AppendInt(append(dst, `,"stored":`...), int64(p.Stored), 10)
	}
	if p.RequestID != "" {
		dst = appendQuoted(append(dst, `,"request_id":`...), p.RequestID)
	}
	return append(dst, `}}`...)
}

func appendSeq(dst []byte, name string, n schema.Seq) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, name...), int64(n), 10)
}

func appendQuoted(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes; invalid UTF-8 is replaced
	return append(dst, b...)
}

// Refusal is why a request is refused, in words for its client: they stand in its answer alone, without the trail
// that leads there.
type Refusal struct {
	kind error
	text string
}

// Refuse makes an error that wraps kind, a sentinel that package edge has a reason for.
func Refuse(kind error, format string, args ...any) error {
	return &Refusal{kind: kind, text: fmt.Sprintf(format, args...)}
}

// BadValue refuses what a request gives for a parameter or a header: it names that, what it must be, and the beginning
// of what was given. kind is ErrBadRequest, or schema.ErrBadCursor for a position.
func BadValue(kind error, name, given, allowed string, args ...any) error {
	return Refuse(kind, "%s must be %s, not %s", name, fmt.Sprintf(allowed, args...), quote(given))
}

// maxQuoted bounds what a refusal repeats of a value, in bytes.
const maxQuoted = 40

func quote(given string) string {
	if len(given) > maxQuoted {
		return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(given[:maxQuoted], ""), len(given))
	}
	return fmt.Sprintf("%q", given)
}

// Words joins the words that a value may be: a, b or c.
func Words(words ...string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// RefuseAs is Refuse with a code of the protocol's own (Problem.Named).
func RefuseAs(code string, kind error, format string, args ...any) error {
	return &coded{Refusal{kind: kind, text: fmt.Sprintf(format, args...)}, code}
}

// coded is a Refusal with a code.
type coded struct {
	Refusal
	code string
}

// ProblemCode returns the code.
func (e *coded) ProblemCode() string { return e.code }

// Error has the sentinel's text as well, for logs.
func (e *Refusal) Error() string { return e.text + ": " + e.kind.Error() }

// Unwrap returns the sentinel.
func (e *Refusal) Unwrap() error { return e.kind }

// Words are for the client.
func (e *Refusal) Words() string { return e.text }
