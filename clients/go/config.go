package agentstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config configures a Client. Only BaseURL is required.
type Config struct {
	BaseURL string // http://HOST[:PORT] or https://…, with or without a path, without credentials
	Token   string // bearer token, when TokenSource is nil; "" sends none

	// TokenSource returns bearer tokens. It is called for the first one, and again when the server has
	// refused the last one or reports that it has expired; then it must return another one. Calls do
	// not overlap. Its error ends the request that needs the token, unless it wraps ErrUnavailable:
	// then TokenSource is called again later, as a server that is away is tried again.
	TokenSource func(ctx context.Context) (string, error)

	// HTTPClient sends the requests. Nil means a new client with time-outs for dialling and for the
	// header of an answer. Its Timeout must be 0, because it would end streams.
	HTTPClient *http.Client
	// RootCAs are the authorities of the server's certificate, where HTTPClient is nil. Nil means those of the system.
	RootCAs *x509.CertPool

	// Trace returns the traceparent of what the caller does, "" for none. It is asked for each request, and what it
	// returns is kept with the events that the request brings. Nil sends none; an HTTPClient that is instrumented sends
	// its own.
	Trace func(ctx context.Context) string

	Logger    *slog.Logger // nil discards
	Hooks     Hooks
	UserAgent string // "" is "agentstream-go"

	// GiveUp bounds how long requests are repeated while the server does not answer. 0 means that only
	// the context ends them.
	GiveUp time.Duration
	// FailFast makes a request fail at once with ErrUnreachable when no connection to the server can be made and the
	// server has never answered before. Once it has answered, requests are repeated as usual.
	FailFast bool
	// IdleTimeout ends a connection of a Stream on which nothing arrives. A server sends a keep-alive
	// every 15 s (native §5). 0 means 60 s.
	IdleTimeout time.Duration
	// RequestTimeout bounds one attempt of a request that is not a stream. 0 means 30 s.
	RequestTimeout time.Duration
}

// Hooks are called when a Client does something on its own. They run on the goroutine of the call
// and must not block. Nil hooks are not called.
type Hooks struct {
	// Retrying is called when a request or a connection has failed, with the pause before the next try.
	Retrying func(cause error, wait time.Duration)
	// Duplicate is called when an event arrives that was delivered before. It is not delivered again.
	Duplicate func(seq, cursor int64)
	// PassedOver is called when a frame is not an event and has no seq: it is newer than this library.
	PassedOver func(cause error)
	// Unconfirmed is called when a run's last event has arrived and the server is away before it has
	// confirmed that nothing follows.
	Unconfirmed func(cause error)
}

const (
	defaultIdleTimeout    = 60 * time.Second
	defaultRequestTimeout = 30 * time.Second
	headerTimeout         = 30 * time.Second // for the answer's header, also of a stream, whose body has no end
)

func (c Config) withDefaults() Config {
	if c.HTTPClient == nil {
		c.HTTPClient = newHTTPClient(c.RootCAs)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.UserAgent == "" {
		c.UserAgent = "agentstream-go"
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdleTimeout
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	return c
}

// Errors of New about a Config.
var (
	ErrBaseURL = errors.New("base URL")
	ErrToken   = errors.New("token")
)

func (c Config) validate() (*url.URL, error) {
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("%w %q: want http://HOST[:PORT] or https://HOST[:PORT]", ErrBaseURL, redact(base, c.BaseURL))
	}
	if base.User != nil || base.RawQuery != "" || base.ForceQuery || base.Fragment != "" {
		return nil, fmt.Errorf("%w: want an address without user, query or fragment; credentials are a token's business", ErrBaseURL)
	}
	if err := validToken(c.Token); err != nil {
		return nil, err
	}
	if c.GiveUp < 0 || c.IdleTimeout < 0 || c.RequestTimeout < 0 {
		return nil, errors.New("config: a time is negative")
	}
	return base, nil
}

// redact returns an address without the password that it should not have had.
func redact(u *url.URL, text string) string {
	if u == nil { // url.Parse would repeat a password as well
		if _, rest, found := strings.Cut(text, "@"); found {
			return "…@" + rest
		}
		return text
	}
	return u.Redacted()
}

// validToken keeps what no header can carry away from it, and out of error texts.
func validToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: holds characters that no token has", ErrToken)
	}
	return nil
}

func newHTTPClient(roots *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: headerTimeout,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       60 * time.Second,
	}}
}
