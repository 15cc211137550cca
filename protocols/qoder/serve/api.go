package serve

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/qoder"
)

// Protocol returns the dialect with its routes, below all bases.
func Protocol(d qoder.Dialect) protocol.Protocol {
	api := protocol.Protocol{Dialect: d, RequestID: "Request-Id", Refused: discourageRetry,
		Expose: []string{"Request-Id", "X-Should-Retry"},
		// What clients' libraries send of their own; nobody reads it here.
		Allow: []string{"Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access", "Anthropic-Version",
			"X-Stainless-Arch", "X-Stainless-Helper",
			"X-Stainless-Helper-Method", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version",
			"X-Stainless-Retry-Count",
			"X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout"}}
	for _, base := range qoder.Bases() {
		api.Below = append(api.Below, base+"/sessions")
		api.Streams = append(api.Streams, streams(base)...)
		a := routes{spoken: d, limit: defaultLimit}
		if strings.HasSuffix(base, qoder.BaseV1) {
			a.limit = defaultLimitV1
		}
		for _, rt := range a.all() {
			method, path, _ := strings.Cut(rt.Pattern, " ")
			rt.Pattern = method + " " + base + path
			api.Routes = append(api.Routes, rt)
		}
	}
	return api
}

// streams are those below one base: of the session and of one thread, each also on the path of its history for those
// who ask for a stream there (qoder §1.4).
func streams(base string) (list []protocol.Stream) {
	for _, path := range []struct {
		name, path string
		asked      func(dialect.Input) bool
	}{
		{"session", "/sessions/{run}/events/stream", nil},
		{"session.history", "/sessions/{run}/events", protocol.IsStreamAccepted},
		{"thread", "/sessions/{run}/threads/{thread}/stream", nil},
		{"thread.history", "/sessions/{run}/threads/{thread}/events", protocol.IsStreamAccepted},
	} {
		st := dialect.Stream{Name: path.name + base, Pattern: "GET " + base + path.path, Transport: dialect.SSE,
			Mode: dialect.ModeD, Shared: true}
		list = append(list, protocol.Stream{Stream: st, Asked: path.asked})
	}
	return list
}

// Pages' sizes when none is asked for: Qoder's, and that of the clients which put /v1 before every path (qoder
// §1.5, §2).
const (
	defaultLimit   = 20
	defaultLimitV1 = 1000
)

// routes are those below one base.
type routes struct {
	spoken qoder.Dialect
	limit  int // of pages, when none is asked for
}

func (a routes) all() []protocol.Route {
	read := func(pattern string, serve func(context.Context, *protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(serve)}
	}
	write := func(pattern string, serve func(context.Context, *protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeWrite, Writes: true, Serve: protocol.WithLogTimeout(serve)}
	}
	// What closes a session stops its agent, which is a command.
	closing := func(pattern string, serve func(context.Context, *protocol.Call) error) protocol.Route {
		r := write(pattern, serve)
		r.Needs |= auth.ScopeCommand
		return r
	}
	// Not counted, as the commands of the native protocol are not: an agent can be stopped however much it has sent.
	command := func(pattern string, serve func(context.Context, *protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeCommand, Serve: protocol.WithLogTimeout(serve)}
	}
	return []protocol.Route{
		write("POST /sessions", a.create),
		read("GET /sessions", a.list),
		read("GET /sessions/{run}", a.get),
		write("POST /sessions/{run}", a.update),
		write("PATCH /sessions/{run}", a.update),
		closing("DELETE /sessions/{run}", a.remove),
		closing("POST /sessions/{run}/archive", a.archive),
		command("POST /sessions/{run}/cancel", a.cancel),
		command("POST /sessions/{run}/events", a.send),
		read("GET /sessions/{run}/events", a.history),
		read("GET /sessions/{run}/threads", a.threads),
		read("GET /sessions/{run}/threads/{thread}", a.thread),
		closing("POST /sessions/{run}/threads/{thread}/archive", a.archiveThread),
		read("GET /sessions/{run}/threads/{thread}/events", a.history),
	}
}

// discourageRetry keeps clients from repeating a 409 as they do a 503, where that would never help.
func discourageRetry(h http.Header, err error) {
	if errors.Is(err, dialect.ErrGone) {
		h.Set("X-Should-Retry", "false")
	}
}
