package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"agentstream/schema"
)

// ServerFlags say which server a command talks to, and as whom.
type ServerFlags struct {
	Server    string        `help:"Address of the server." env:"AGENTSTREAM_SERVER" default:"http://127.0.0.1:8080"`
	Token     string        `help:"Bearer token. A file or the environment keeps it out of the process list." env:"AGENTSTREAM_TOKEN" placeholder:"TOKEN"`
	TokenFile string        `help:"File that holds the bearer token; wins over --token." type:"path" placeholder:"FILE"`
	GiveUp    time.Duration `help:"Give up when the server has not answered for this long; 0 never." default:"2m"`
}

// Streams are where a command reads and writes. Nil fields are the process's own.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

func (s *Streams) in() io.Reader {
	if s.In == nil {
		return os.Stdin
	}
	return s.In
}

func (s *Streams) out() io.Writer {
	if s.Out == nil {
		return os.Stdout
	}
	return s.Out
}

func (s *Streams) err() io.Writer {
	if s.Err == nil {
		return os.Stderr
	}
	return s.Err
}

// client speaks the HTTP API of one server. It is safe for concurrent use.
type client struct {
	base   *url.URL
	token  string
	http   *http.Client
	giveUp time.Duration
	notice notice
}

// notice prints one line for the person who waits. It must be safe for concurrent use where the
// client is used so.
type notice func(format string, args ...any)

// requestTimeout bounds one attempt of a request that is no stream. An attempt that was cut off here
// is repeated with the same idempotency key.
const requestTimeout = 30 * time.Second

// headerTimeout bounds the wait for the answer's header, also of a stream, whose body has no end.
const headerTimeout = 30 * time.Second

// newClient checks the flags; its errors name them.
func newClient(f ServerFlags, say notice) (*client, error) {
	base, err := url.Parse(f.Server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("--server %q: want http://HOST[:PORT] or https://HOST[:PORT]", f.Server)
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("--server: want an address without user, query or fragment; credentials go into --token-file")
	}
	token := f.Token
	if f.TokenFile != "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("--token: holds characters that no token has")
	}
	if say == nil {
		say = func(string, ...any) {}
	}
	return &client{base: base, token: token, http: newHTTPClient(), giveUp: f.GiveUp, notice: say}, nil
}

func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: headerTimeout,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       60 * time.Second,
	}}
}

// close lets go of idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// url joins path elements to the server's address; each is escaped, so that no id can leave its
// place.
func (c *client) url(elem ...string) string {
	u := c.base.EscapedPath()
	u = strings.TrimSuffix(u, "/")
	for _, e := range elem {
		u += "/" + url.PathEscape(e)
	}
	return c.base.Scheme + "://" + c.base.Host + u
}

func (c *client) runURL(run string, rest ...string) string {
	return c.url(append([]string{"v1", "agent", "runs", run}, rest...)...)
}

func (c *client) request(ctx context.Context, method, target string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body) // gives the request a GetBody, for redirects
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "agentstream/"+buildVersion())
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// call sends a request until it is answered for good: 429, 502, 503, 504, 408 and connection errors
// are tried again with the same key, so that what it stores is stored once. into may be nil.
func (c *client) call(ctx context.Context, method, target, contentType, key string, body []byte, into any) error {
	b := c.newBackoff()
	for {
		err := c.attempt(ctx, method, target, contentType, key, body, into)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hint, again := retryable(err)
		if !again {
			return err
		}
		if werr := b.wait(ctx, hint, err); werr != nil {
			return werr
		}
	}
}

func (c *client) attempt(ctx context.Context, method, target, contentType, key string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := c.request(ctx, method, target, body)
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return &connError{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return readAPIError(resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &connError{err} // the answer was cut: what was stored is known only by asking again
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: answer is not of this API: %w", target, err)
	}
	return nil
}

// maxAnswer bounds an answer that is no stream, in bytes.
const maxAnswer = 8 << 20

// receipt is the answer to an append.
type receipt struct {
	First schema.Seq `json:"first_seq"`
	Last  schema.Seq `json:"last_seq"`
}

// appendEvents stores a batch of NDJSON lines, exactly once per key.
func (c *client) appendEvents(ctx context.Context, run, key string, body []byte) (receipt, error) {
	var r receipt
	err := c.call(ctx, http.MethodPost, c.runURL(run, "events"), "application/x-ndjson", key, body, &r)
	if err == nil && (r.First < 1 || r.Last < r.First) {
		err = fmt.Errorf("server acknowledged seq %d to %d, which is no range", r.First, r.Last)
	}
	return r, err
}

// created is the answer to the beginning of a run.
type created struct {
	receipt
	RunID string `json:"run_id"`
}

// createRun lets the server mint an id and begin the run with run.lifecycle running.
func (c *client) createRun(ctx context.Context, key string) (created, error) {
	var r created
	if err := c.call(ctx, http.MethodPost, c.url("v1", "agent", "runs"), "application/json", key, []byte("{}"), &r); err != nil {
		return r, fmt.Errorf("begin a run: %w", err)
	}
	if err := schema.ValidRunID(r.RunID); err != nil {
		return r, fmt.Errorf("server minted a run id: %w", err)
	}
	return r, nil
}

// runExists asks whether a run has events.
func (c *client) runExists(ctx context.Context, run string) (bool, error) {
	err := c.call(ctx, http.MethodGet, c.runURL(run), "", "", nil, nil)
	var api *apiError
	if errors.As(err, &api) && api.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}
