package agentstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Client speaks the HTTP API of one server. It is safe for concurrent use.
type Client struct {
	cfg    Config
	base   *url.URL
	tokens *tokens

	answered atomic.Bool // by the server, with any status
}

// New checks cfg. It connects to nothing and starts nothing.
func New(cfg Config) (*Client, error) {
	base, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Client{cfg: cfg, base: base, tokens: newTokens(&cfg)}, nil
}

// Close closes idle connections. The Client can still be used.
func (c *Client) Close() { c.cfg.HTTPClient.CloseIdleConnections() }

// url joins path elements to the server's address. Each is escaped, so that an id cannot change the path.
func (c *Client) url(elem ...string) string {
	u := strings.TrimSuffix(c.base.EscapedPath(), "/")
	for _, e := range elem {
		u += "/" + url.PathEscape(e)
	}
	return c.base.Scheme + "://" + c.base.Host + u
}

// withQuery adds what is not empty.
func withQuery(target string, q url.Values) string {
	if len(q) == 0 {
		return target
	}
	return target + "?" + q.Encode()
}

// Media types of bodies.
const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// request is one call of the API. What is empty is not sent.
type request struct {
	method, target    string
	contentType, key  string // key: Idempotency-Key
	accept, lastEvent string // lastEvent: Last-Event-ID
	body              []byte
}

// build makes the request to send, and returns the token that went into it.
func (c *Client) build(ctx context.Context, r *request) (*http.Request, string, error) {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return nil, "", err
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body) // gives the request a GetBody, for redirects
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.target, body)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range [][2]string{
		{"User-Agent", c.cfg.UserAgent}, {"Accept", r.accept}, {"Content-Type", r.contentType},
		{"Idempotency-Key", r.key}, {"Last-Event-ID", r.lastEvent},
	} {
		if h[1] != "" {
			req.Header.Set(h[0], h[1])
		}
	}
	if trace := c.cfg.Trace; trace != nil {
		if parent := trace(ctx); parent != "" {
			req.Header.Set("Traceparent", parent)
		}
	}
	return req, token, nil
}

// maxAnswer bounds an answer that is no stream, in bytes. A page of events is at most 4 MiB and one
// event; a snapshot holds the text of a whole run.
const maxAnswer = 256 << 20

// call sends a request until it gets a final answer: 408, 429, 502, 503, 504 and connection errors are
// repeated with the same key, so that the request takes effect once. If the server refuses the token and
// there is a source, call gets another one, once. into may be nil, or a *[]byte, which gets the raw answer.
func (c *Client) call(ctx context.Context, r request, into any) (http.Header, error) {
	r.accept = typeJSON
	if rawAnswer(into) != nil {
		r.accept = "*/*"
	}
	b := backoff{giveUp: c.cfg.GiveUp}
	renewed := false
	for {
		header, token, err := c.attempt(ctx, &r, into)
		if err == nil {
			return header, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !renewed && isRefusal(err) && c.tokens.canReplace(ctx, token) {
			renewed = true
			continue
		}
		hint, again, err := c.retryable(err)
		if !again {
			return nil, err
		}
		d, gaveUp := b.pause(hint, err)
		if gaveUp != nil {
			return nil, gaveUp
		}
		c.retrying(ctx, err, d)
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
	}
}

// rawAnswer returns where to put an answer that is not decoded, nil for one that is.
func rawAnswer(into any) *[]byte {
	raw, _ := into.(*[]byte)
	return raw
}

// isRefusal reports whether the server refused the credential.
func isRefusal(err error) bool {
	e := new(Error)
	return errors.As(err, &e) && e.Status == http.StatusUnauthorized
}

func (c *Client) retrying(ctx context.Context, cause error, wait time.Duration) {
	c.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "trying again", slog.Any("error", cause), slog.Duration("wait", wait))
	if h := c.cfg.Hooks.Retrying; h != nil {
		h(cause, wait)
	}
}

// do sends one request. The error wraps ErrUnavailable.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, &connError{err}
	}
	c.answered.Store(true)
	return resp, nil
}

// retryable reports whether a request is to be repeated, and how long to wait at least. Otherwise it returns the
// error to end with.
func (c *Client) retryable(err error) (hint time.Duration, again bool, because error) {
	if dial := new(net.OpError); c.cfg.FailFast && !c.answered.Load() && errors.As(err, &dial) && dial.Op == "dial" {
		return 0, false, fmt.Errorf("%w at %s: %w", ErrUnreachable, c.base.Host, err)
	}
	hint, again = retryable(err)
	return hint, again, err
}

func (c *Client) attempt(ctx context.Context, r *request, into any) (http.Header, string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	req, token, err := c.build(ctx, r)
	if err != nil {
		return nil, token, err
	}
	resp, err := c.do(req)
	if err != nil {
		return nil, token, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return nil, token, readError(resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, token, &connError{err} // cut: only a repeat tells what was stored
	}
	if raw := rawAnswer(into); raw != nil {
		*raw = answer
		return resp.Header, token, nil
	}
	if into == nil {
		return resp.Header, token, nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return nil, token, fmt.Errorf("%s: decode the answer: %w", r.target, err)
	}
	return resp.Header, token, nil
}
