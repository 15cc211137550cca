package proxy

import (
	"net/http"
	"strings"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
)

// api is one kind of model call.
type api struct {
	provider string // as events have it
	decoder  func(provider.Config) *provider.Decoder
	read     func(provider.Fields) conversation // reads a request
	again    bool                               // an answer may be asked for again
}

// The APIs that are recorded.
var (
	messages  = api{anthropic.Provider, anthropic.NewDecoder, readMessages, false}
	chat      = api{openai.Provider, openai.NewChatDecoder, readChat, false}
	responses = api{openai.Provider, openai.NewResponsesDecoder, readResponses, true}
	generate  = api{gemini.Provider, gemini.NewDecoder, readContents, false}
)

// recognise finds out what a request asks for: its path decides, whatever upstream it goes to, for many
// serve more than one API. model is the one that the path names. ok is false for everything that passes
// unrecorded.
func recognise(r *http.Request, path string) (a api, model string, ok bool) {
	switch {
	case r.Method == http.MethodGet:
		// A response that goes on in the background is watched again. Without a stream it is only looked at.
		return responses, "", responseID(r, path) != "" && r.URL.Query().Get("stream") == "true"
	case r.Method != http.MethodPost:
	case strings.HasSuffix(path, "/v1/messages"):
		return messages, "", true
	case strings.HasSuffix(path, "/chat/completions"):
		return chat, "", true
	case strings.HasSuffix(path, "/responses"):
		return responses, "", true
	default:
		_, last := split(path, "/")
		if m, verb := split(last, ":"); verb == "generateContent" || verb == "streamGenerateContent" {
			return generate, m, true
		}
	}
	return api{}, "", false
}

// split cuts a text at the last separator.
func split(s, sep string) (before, after string) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}

// upstream finds where a request goes, and the path it has there. Both paths are clean.
func (p *Proxy) upstream(path, raw string) (up *Upstream, ownPath, ownRaw string, ok bool) {
	if len(p.cfg.Upstreams) == 1 {
		return &p.cfg.Upstreams[0], path, raw, true
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for i := range p.cfg.Upstreams {
		if up := &p.cfg.Upstreams[i]; up.Name == name {
			prefix := "/" + name
			if !strings.HasPrefix(raw, prefix) {
				return nil, "", "", false // the name itself is escaped: no client writes it so
			}
			return up, strings.TrimPrefix(path, prefix), strings.TrimPrefix(raw, prefix), true
		}
	}
	return nil, "", "", false
}

// responseID returns the id of the response that a request asks for or cancels; "" where it asks for none.
func responseID(r *http.Request, path string) string {
	head, id := split(path, "/")
	switch {
	case r.Method == http.MethodPost && id == "cancel":
		head, id = split(head, "/")
	case r.Method != http.MethodGet:
		return ""
	}
	if !strings.HasSuffix(head, "/responses") {
		return ""
	}
	return id
}
