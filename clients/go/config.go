package agentstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says which server a Client talks to, and as whom. BaseURL alone is required.
type Config struct {
	BaseURL string // http://HOST[:PORT] or https://…, with or without a path, without credentials
	Token   string // bearer token, when TokenSource is nil; "" sends none

	// TokenSource returns bearer tokens. It is asked for the first one, and again when the server has
	// refused the last one or says that it has ended; it must not give the same one again then. Calls
	// do not overlap. Its error ends what needed the token, unless it wraps ErrUnavailable: then it is
	// asked again like a server that is away.
	TokenSource func(ctx context.Context) (string, error)

	// HTTPClient carries the requests. Nil is a client of its own with bounds for dialling and for the
	// answer's header. A Timeout of the client would end streams: leave it 0.
	HTTPClient *http.Client

	Logger    *slog.Logger // nil discards
	Hooks     Hooks
	UserAgent string // "" is "agentstream-go"

	// GiveUp ends the repeating when the server has not answered for so long. 0: the context decides.
	GiveUp time.Duration
	// FailFast ends what is asked at once, with ErrUnreachable, while no connection to the server can be made and none
	// has been answered before. Once the server has answered, it is waited for as ever.
	FailFast bool
	// IdleTimeout ends a connection of a Stream on which not even a keep-alive came, which a server
	// sends every 15 s (native §5). 0 is 60 s.
	IdleTimeout time.Duration
	// RequestTimeout bounds one attempt of a request that is no stream. 0 is 30 s.
	RequestTimeout time.Duration
}

// Hooks tell an application what a Client does on its own. They are called on the goroutine that
// waits and must not block. Nil ones are off.
type Hooks struct {
	// Retrying says why a request or a connection failed, and when it is tried again.
	Retrying func(cause error, wait time.Duration)
	// Duplicate says that an event came again that was delivered before; it is passed over.
	Duplicate func(seq, cursor int64)
	// PassedOver says that a frame is no event and names none: something newer than this library.
	PassedOver func(cause error)
	// Unconfirmed says that a run's last event came, and that the server was gone before it could say
	// that nothing follows.
	Unconfirmed func(cause error)
}

const (
	defaultIdleTimeout    = 60 * time.Second
	defaultRequestTimeout = 30 * time.Second
	headerTimeout         = 30 * time.Second // for the answer's header, also of a stream, whose body has no end
)

func (c Config) withDefaults() Config {
	if c.HTTPClient == nil {
		c.HTTPClient = newHTTPClient()
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

// What New says is wrong with a Config; an application's flags are named after its fields.
var (
	ErrBaseURL = errors.New("base URL")
	ErrToken   = errors.New("token")
)

func (c Config) validate() (*url.URL, error) {
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("%w %q: want http://HOST[:PORT] or https://HOST[:PORT]", ErrBaseURL, redacted(base, c.BaseURL))
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

// redacted is an address without the password that it should not have had.
func redacted(u *url.URL, text string) string {
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
