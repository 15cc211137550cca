package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema/trace"
)

// api is how one provider is asked.
type api struct {
	provider string
	decoder  func(provider.Config) *provider.Decoder
	path     func(model string) string // below the URL's own
	body     func(d *description, input []inputMessage) any
	header   func(h http.Header, key string)
}

var apis = map[string]api{
	"openai": {openai.Provider, openai.NewChatDecoder, func(string) string { return "chat/completions" },
		chatRequest, bearer},
	"openai-responses": {openai.Provider, openai.NewResponsesDecoder, func(string) string { return "responses" },
		responsesRequest, bearer},
	"anthropic": {anthropic.Provider, anthropic.NewDecoder, func(string) string { return "messages" }, messagesRequest,
		func(h http.Header, key string) {
			h.Set("Anthropic-Version", "2023-06-01")
			set(h, "X-Api-Key", "", key)
		}},
	"gemini": {gemini.Provider, gemini.NewDecoder,
		func(m string) string { return "models/" + url.PathEscape(m) + ":streamGenerateContent?alt=sse" }, generateRequest,
		func(h http.Header, key string) { set(h, "X-Goog-Api-Key", "", key) }},
}

func bearer(h http.Header, key string) { set(h, "Authorization", "Bearer ", key) }

func set(h http.Header, name, before, key string) {
	if key != "" {
		h.Set(name, before+key)
	}
}

// Upstream asks a provider. It is safe for concurrent use.
type Upstream struct {
	api    api
	base   string
	key    string
	client *http.Client
}

// NewUpstream returns the upstream of an API: openai (chat completions), openai-responses, anthropic or gemini. base is
// the address that paths of the API are below; without a path it is /v1, or /v1beta of gemini. key may be "".
func NewUpstream(name string, base *url.URL, key string) (*Upstream, error) {
	a, ok := apis[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("model: upstream %.40q: want openai, openai-responses, anthropic or gemini", name)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "":
		return nil, fmt.Errorf("model: upstream %s: want an http or https URL without user, password and query", name)
	}
	own := *base
	if strings.Trim(own.Path, "/") == "" {
		own.Path = "/v1"
		if name == "gemini" {
			own.Path = "/v1beta"
		}
	}
	return &Upstream{api: a, base: strings.TrimRight(own.String(), "/") + "/", key: key, client: &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Provider returns the name of the provider.
func (u *Upstream) Provider() string { return u.api.provider }

// Close lets go of connections that are idle.
func (u *Upstream) Close() { u.client.CloseIdleConnections() }

// Answer asks the model that the session names, and feeds its answer into the turn as it comes.
func (u *Upstream) Answer(ctx context.Context, q *worker.Task) (stop string, err error) {
	var d description
	if err := json.Unmarshal(q.Session, &d); err != nil {
		return "", &Error{BadInput, fmt.Errorf("session.created: %w", err)}
	}
	input, err := messagesOf(q)
	if err != nil {
		return "", err
	}
	return u.ask(ctx, q, &d, input)
}

func (u *Upstream) ask(ctx context.Context, q *worker.Task, d *description, input []inputMessage) (stop string,
	err error) {
	body, err := json.Marshal(u.api.body(d, input))
	if err != nil {
		return "", &Error{BadInput, err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.base+u.api.path(d.Model), bytes.NewReader(body))
	if err != nil {
		return "", &Error{BadInput, err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	u.api.header(req.Header, u.key)
	set(req.Header, trace.Header, "", cmp.Or(trace.FromContext(ctx), q.Message.Event.Trace()))
	resp, err := u.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the URL
		}
		return "", &Error{Unavailable, fmt.Errorf("%s does not answer: %w", u.api.provider, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
		return "", &Error{kindOf(resp.StatusCode), fmt.Errorf("%s answers %d", u.api.provider, resp.StatusCode)}
	}
	r := &broken{Reader: resp.Body}
	if err := q.Turn.Model(u.api.provider, d.Model, u.api.decoder(provider.Config{}), r); err != nil {
		if errors.Is(err, producers.ErrOver) {
			return "", err
		}
		return "", &Error{r.kind, err}
	}
	if calls, err := handOver(q.Turn); calls || err != nil {
		return "tool_use", err
	}
	return "end_turn", nil
}

// broken is a body that notes that it broke off.
type broken struct {
	io.Reader
	kind Kind // Internal until then
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.kind = Broken
	}
	return n, err
}

// kindOf returns the kind of error that a status is.
func kindOf(status int) Kind {
	switch {
	case status == http.StatusNotFound:
		return NotFound
	case status == http.StatusTooManyRequests:
		return Limited
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return Timeout
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusRequestEntityTooLarge:
		return BadInput
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status < 500:
		return Unavailable // credentials that are refused are ours, and not the client's
	}
	return Internal
}
