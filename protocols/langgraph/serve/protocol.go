package serve

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/protocols/langgraph"
)

// Base is the beginning of the paths at which everything is served besides /.
const Base = "/langgraph"

// Config sets the protocol up. The zero value works.
type Config struct {
	KeepAlive time.Duration // silence after which a stream shows a sign of life; default 7 s. Clients give up after 30 s
	Backlog   int           // records that may wait for a client that had everything; default 10,000
}

// api is what the routes know.
type api struct{ cfg Config }

// Protocol returns the dialect with its streams, conversations and routes.
func Protocol(cfg Config) protocol.Protocol {
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 7*time.Second)
	cfg.Backlog = cmp.Or(cfg.Backlog, 10_000)
	a := &api{cfg: cfg}
	p := protocol.Protocol{
		Dialect: langgraph.Dialect{}, Key: "X-Api-Key", KeepAlive: cfg.KeepAlive, LastWords: lastWords,
		Below: []string{Base, "/threads", "/runs", "/assistants"}, Expose: []string{"Content-Location", "Location"},
	}
	for _, base := range []string{"", Base} {
		for _, s := range slices.Concat(a.streams(), a.legacyStreams()) {
			s.Name, s.Pattern = s.Name+base, below(base, s.Pattern)
			p.Streams = append(p.Streams, s)
		}
		for _, v := range a.conversations() {
			v.Pattern = below(base, v.Pattern)
			p.Conversations = append(p.Conversations, v)
		}
		for _, r := range slices.Concat(a.commandRoutes(), a.stateRoutes(), a.threadRoutes(), a.legacyRoutes()) {
			r.Pattern = below(base, r.Pattern)
			p.Routes = append(p.Routes, r)
		}
	}
	return p
}

// below puts a base before the path of a pattern.
func below(base, pattern string) string {
	method, path, _ := strings.Cut(pattern, " ")
	return method + " " + base + path
}

// route is a row of the table: what answers a method and a path, to callers with a scope.
func route(method, path string, needs auth.Scope, serve serve) protocol.Route {
	return protocol.Route{Pattern: method + " " + path, Needs: needs, Writes: needs&auth.ScopeWrite != 0,
		Serve: protocol.WithLogTimeout(serve)}
}

// lastWords has sockets closed so that every client comes again when its node goes away (§8.12), and none when it may
// not, or the thread is gone (§8.22).
func lastWords(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
	if !begun || st.Transport != dialect.WebSocket {
		return
	}
	switch why.Reason {
	case dialect.ReasonShutdown:
		end.Close = 1012
	case dialect.ReasonCredentialExpired, dialect.ReasonUnauthorized, dialect.ReasonForbidden, dialect.ReasonNotFound:
		end.Close = 4000 + why.Status
	}
}
