package agentstream

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentstream/schema"
)

// Sentinels sort errors by what a caller can do about them.
var (
	// ErrNotFound: there is no such run, or it is another tenant's.
	ErrNotFound = errors.New("not found")
	// ErrExpired: events after the cursor are no longer kept. Begin at Error.FirstSeq, where it is
	// given, or with a snapshot; what lies between is lost to this client.
	ErrExpired = errors.New("no longer kept")
	// ErrCursorAhead: the cursor is beyond the newest event, so it is not of this run or this log.
	ErrCursorAhead = errors.New("cursor is ahead of the run")
	// ErrEnded: the run is over and takes nothing but a follow-up.
	ErrEnded = errors.New("run has ended")
	// ErrExists: the run that was to begin has events already.
	ErrExists = errors.New("run exists")
	// ErrConflict: the state of the run forbids it. Errors that are ErrEnded, ErrExists or
	// ErrCursorAhead are ErrConflict as well.
	ErrConflict = errors.New("conflict with the state of the run")
	// ErrUnauthorized: there is no credential, or it has ended, and no other was to be had.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden: the credential does not allow this.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: the server is away or busy; the same request may succeed later.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnreachable, with Config.FailFast: no connection to the server could be made.
	ErrUnreachable = errors.New("no server")
)

// Codes of the server that are looked at; docs/dialects/native.md has them all.
const (
	codeRunEnded          = "RUN-ENDED"
	codeRunExists         = "RUN-EXISTS"
	codeCursorAhead       = "CURSOR-AHEAD"
	codeSeqMismatch       = "SEQ-MISMATCH"
	codeUnauthorized      = "UNAUTHORIZED"
	codeCredentialExpired = "CREDENTIAL-EXPIRED"
)

// Error is the server's refusal of a request, or its reason to end a stream.
type Error struct {
	Status     int           // of HTTP; for the last frame of a stream the one that it would have been
	Code       string        // KAI-STREAM-…, or another code of the server; "" when a proxy answered
	Message    string        // for people, as it came
	Line       int           // line of an NDJSON body, from 1; 0 when the error is of no line
	Field      string        // JSON pointer into the event; "" when the error is of no field
	FirstSeq   schema.Seq    // oldest event that is kept, with ErrExpired; 0 when the server did not name it
	LastSeq    schema.Seq    // newest event, with ErrCursorAhead; 0 when the server did not name it
	Stored     int           // events of a refused batch, from its first, that are stored all the same
	RequestID  string        // names the request in the server's log
	RetryAfter time.Duration // how long the server asks clients to wait; 0 when it did not
}

// Error returns code, reason and status, with everything in them that could act on a terminal or break
// a line of a log escaped.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Code != "" {
		b.WriteString(printable(e.Code) + ": ")
	}
	if e.Message != "" {
		b.WriteString(printable(e.Message))
	} else {
		b.WriteString(strings.ToLower(http.StatusText(e.Status)))
	}
	fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	return b.String()
}

// Is reports whether the error is of the kind of a sentinel: one of this package, or schema.ErrEnded or
// schema.ErrSeqMismatch, which producers return for the same refusals.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrExpired:
		return e.Status == http.StatusGone
	case ErrCursorAhead:
		return e.Code == codeCursorAhead
	case ErrEnded, schema.ErrEnded:
		return e.Code == codeRunEnded
	case schema.ErrSeqMismatch:
		return e.Code == codeSeqMismatch
	case ErrExists:
		return e.Code == codeRunExists
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized
	case ErrForbidden:
		return e.Status == http.StatusForbidden
	case ErrUnavailable:
		return e.passing()
	}
	return false
}

// passing reports whether the same request may be answered otherwise later.
func (e *Error) passing() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// connError reports that a request was not answered, or not completely.
type connError struct{ err error }

// Error leaves out method and address: the caller knows what it asked for.
func (e *connError) Error() string {
	if errors.Is(e.err, http.ErrSchemeMismatch) {
		return "the server speaks HTTP without TLS: its address begins with http://"
	}
	var u *url.Error
	if errors.As(e.err, &u) {
		return u.Err.Error()
	}
	return e.err.Error()
}

func (e *connError) Unwrap() error { return e.err }

// Is reports whether asking again may help; it does not make a certificate trusted, nor a server speak TLS.
func (e *connError) Is(target error) bool {
	cert := new(tls.CertificateVerificationError)
	return target == ErrUnavailable && !errors.As(e.err, &cert) && !errors.Is(e.err, http.ErrSchemeMismatch)
}

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 64 << 10

// problem is the server's error form (docs/dialects/native.md).
type problem struct {
	Code      string     `json:"code"`
	Message   string     `json:"message"`
	Status    int        `json:"status"` // in a stream's last frame alone
	Line      int        `json:"line"`
	Field     string     `json:"field"`
	FirstSeq  schema.Seq `json:"first_seq"`
	LastSeq   schema.Seq `json:"last_seq"`
	Stored    int        `json:"stored"`
	RequestID string     `json:"request_id"`
}

// readProblem reads an error body; ok is false when it is none.
func readProblem(body []byte) (p problem, ok bool) {
	var answer struct {
		Error problem `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return problem{}, false
	}
	return answer.Error, answer.Error.Code != "" || answer.Error.Message != ""
}

func (p *problem) err(status int) *Error {
	return &Error{Status: status, Code: p.Code, Message: p.Message, Line: p.Line, Field: p.Field,
		FirstSeq: p.FirstSeq, LastSeq: p.LastSeq, Stored: p.Stored, RequestID: p.RequestID}
}

// readError reads a refusal. What is not the server's form, as from a proxy in between, becomes its
// first line.
func readError(resp *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a cut error is still the status
	var e *Error
	if p, ok := readProblem(body); ok {
		e = p.err(resp.StatusCode)
	} else {
		e = &Error{Status: resp.StatusCode}
		line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		if len(line) > 200 {
			line = strings.ToValidUTF8(line[:200], "") + "…"
		}
		if !strings.HasPrefix(line, "<") { // a proxy's HTML page says less than the status
			e.Message = line
		}
	}
	if e.RequestID == "" {
		e.RequestID = resp.Header.Get("X-Request-Id")
	}
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	return e
}

// lastWord reads the frame that ends a stream with an error. Without a status it is one to come back
// from: the cursor is safe.
func lastWord(data []byte) (*Error, bool) {
	p, ok := readProblem(data)
	if !ok {
		return nil, false
	}
	switch {
	case p.Status != 0:
	case p.Code == codeCredentialExpired, p.Code == codeUnauthorized:
		p.Status = http.StatusUnauthorized
	case p.Code == schema.CodeCursorExpired:
		p.Status = http.StatusGone
	default:
		p.Status = http.StatusServiceUnavailable
	}
	return p.err(p.Status), true
}

// retryAfter reads both forms of RFC 9110 §10.2.3; 0 when there is none.
func retryAfter(v string, now time.Time) time.Duration {
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// retryable reports whether a request may be sent again, and how long the server asked to be left
// alone.
func retryable(err error) (hint time.Duration, again bool) {
	if e := new(Error); errors.As(err, &e) {
		return e.RetryAfter, e.passing()
	}
	return 0, errors.Is(err, ErrUnavailable)
}

// printable escapes what is not to be seen as it is: control characters and marks that change the
// direction of reading. A text that holds none comes back as it is.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsGraphic(r) && r != utf8.RuneError {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
