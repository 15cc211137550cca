package proxy

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

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

// runPrefix begins a path that names its run: /run/ID, and then a path as without it.
const runPrefix = "/run/"

// cutRun takes the run off a path; run is "" where the path names none. A name that is escaped in the path is none that
// a run may have, so it is found out by what the unescaped one is.
func cutRun(path, raw string) (run, ownPath, ownRaw string) {
	rest, ok := strings.CutPrefix(path, runPrefix)
	rawRest, plain := strings.CutPrefix(raw, runPrefix)
	if !ok || !plain {
		return "", path, raw
	}
	run, path, _ = strings.Cut(rest, "/")
	_, raw, _ = strings.Cut(rawRest, "/")
	return run, "/" + path, "/" + raw
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

// cleanPath resolves dot segments and removes empty ones, so that no path leads out of the upstream's base. Escapes
// stay as they are. A dot segment that only shows when a segment is unescaped further than its server should, or that
// is written for servers that take other characters for a slash, is refused: no API has such paths.
func cleanPath(u *url.URL) (path, raw string, refused *refusal) {
	if u.Host != "" || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' {
		return "", "", &refusal{http.StatusBadRequest, "bad_target", "the target must be a path: this is no forward proxy"}
	}
	var kept []string
	list := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, segment := range list {
		plain, err := url.PathUnescape(segment)
		if err != nil || !utf8.ValidString(plain) || hasHiddenDots(plain) { // of %c0%ae some servers make a dot
			return "", "", &refusal{http.StatusBadRequest, "bad_path", "the path has a segment that leads elsewhere"}
		}
		last := i == len(list)-1
		switch plain {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
			continue
		}
		if last && len(kept) > 0 {
			kept = append(kept, "") // it is a folder
		}
	}
	raw = "/" + strings.Join(kept, "/")
	path, err := url.PathUnescape(raw)
	if err != nil {
		return "", "", &refusal{http.StatusBadRequest, "bad_path", "the path cannot be read"}
	}
	return path, raw, nil
}

// maxUnescapes bounds how often a segment is unescaped to see what it hides.
const maxUnescapes = 4

// hasHiddenDots reports whether a segment, which is unescaped, is read as a dot segment somewhere.
func hasHiddenDots(segment string) bool {
	for n := range maxUnescapes {
		if strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return true
		}
		for i, part := range strings.FieldsFunc(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
			name, _, params := strings.Cut(part, ";")
			plain := n == 0 && i == 0 && !params && part == segment // "..": it is resolved
			if (name == "." || name == "..") && !plain {
				return true
			}
		}
		more, err := url.PathUnescape(segment)
		if err != nil || more == segment {
			return false
		}
		segment = more
	}
	return true
}
