package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// apiError is what the server said against a request.
type apiError struct {
	Status     int
	Code       string // KAI-STREAM-…, or the server's own word
	Message    string
	Line       int // line of an NDJSON body, from 1; 0 when the error is of no line
	RetryAfter time.Duration
}

// Error gives code, reason and status, made safe for a terminal.
func (e *apiError) Error() string {
	var b strings.Builder
	if e.Code != "" {
		b.WriteString(sanitize(e.Code) + ": ")
	}
	if e.Message != "" {
		b.WriteString(sanitize(e.Message))
	} else {
		b.WriteString(strings.ToLower(http.StatusText(e.Status)))
	}
	fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	return b.String()
}

// connError says that a request was not answered, or not whole.
type connError struct{ err error }

// Error leaves out method and address: the caller knows what it asked for.
func (e *connError) Error() string {
	var u *url.Error
	if errors.As(e.err, &u) {
		return u.Err.Error()
	}
	return e.err.Error()
}

func (e *connError) Unwrap() error { return e.err }

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 64 << 10

// readAPIError reads the server's error form: {"error":{"code","message","line"}}. Anything else, as
// from a proxy in between, becomes its first line.
func readAPIError(resp *http.Response) *apiError {
	e := &apiError{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a cut error is still the status
	type fields struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Line    int    `json:"line"`
	}
	var answer struct {
		Error fields `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && (answer.Error.Code != "" || answer.Error.Message != "") {
		e.Code, e.Message, e.Line = answer.Error.Code, answer.Error.Message, answer.Error.Line
		return e
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if len(line) > 200 {
		line = line[:200] + "…"
	}
	if !strings.HasPrefix(line, "<") { // a proxy's HTML page says less than the status
		e.Message = line
	}
	return e
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

// retryable says whether a request may be sent again, and how long the server asked to be left
// alone.
func retryable(err error) (hint time.Duration, again bool) {
	var conn *connError
	if errors.As(err, &conn) {
		var cert *tls.CertificateVerificationError // asking again does not make it trusted
		return 0, !errors.As(err, &cert)
	}
	var api *apiError
	if !errors.As(err, &api) {
		return 0, false
	}
	switch api.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return api.RetryAfter, true
	}
	return 0, false
}

// Bounds of the back-off between attempts.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// backoff spaces out attempts: exponential with full jitter, so that clients that one fault threw
// out do not come back in step. One goroutine at a time.
type backoff struct {
	giveUp time.Duration
	base   time.Duration // the first wait, as the server wants it; 0 is backoffFirst
	since  time.Time     // first failure in a row
	next   time.Duration
	notify func(wait time.Duration, err error)
}

func (c *client) newBackoff() *backoff {
	return &backoff{giveUp: c.giveUp, notify: func(wait time.Duration, err error) {
		c.notice("%s; again in %s", sanitize(err.Error()), wait.Round(time.Millisecond))
	}}
}

// reset is called after progress.
func (b *backoff) reset() { b.since, b.next = time.Time{}, 0 }

// alive is called after an answer that brought no progress: there is no reason to give up, and none
// to come back faster.
func (b *backoff) alive() { b.since = time.Time{} }

// wait sleeps before the next attempt: at least as long as the server asked for. It returns cause,
// wrapped, when the time to give up would pass in between.
func (b *backoff) wait(ctx context.Context, hint time.Duration, cause error) error {
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	if b.next <= 0 {
		b.next = backoffFirst
		if b.base > 0 {
			b.next = b.base
		}
	}
	d := b.next/2 + rand.N(b.next/2+1)
	if hint > 0 {
		d = hint + rand.N(b.next/2+1)
	}
	b.next = min(2*b.next, backoffMost)
	if b.giveUp > 0 && now.Add(d).Sub(b.since) > b.giveUp {
		return fmt.Errorf("given up after %s: %w", now.Sub(b.since).Round(time.Second), cause)
	}
	if b.notify != nil {
		b.notify(d, cause)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
