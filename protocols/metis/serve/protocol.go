package serve

import (
	"cmp"
	"context"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/protocol"
	"agentstream/protocols/metis"
)

// Base is the beginning of the paths. With Config.Root they are served without it too.
const Base = "/metis"

// Config sets the protocol up.
type Config struct {
	Root      bool          // serve the paths without Base too
	Heartbeat time.Duration // silence after which a ping is sent; default 30 s (streaming protocol 3.8)
	Backlog   int           // events that may wait for a client; default 1,000 (8.1)
	PublicURL string        // how clients reach the node, https://host/path; "": as the request says
	Secure    bool          // clients speak TLS with the node, where PublicURL says nothing
}

// What a client has time for, and how much it may leave unanswered.
const (
	patience = 10 * time.Second // for a subscribe
	misses   = 3                // pings
)

// attach is what opens a socket once, and may cancel if its caller may (3.1).
var attach = protocol.Ticket{Param: "attach",
	Terms: auth.Terms{Prefix: "atk_", TTL: time.Minute, Scopes: auth.ScopeRead | auth.ScopeCommand}}

// maxMessage is the largest message of a client, in bytes.
const maxMessage = 64 << 10

// api is what is served below one base.
type api struct {
	base string
	cfg  Config
}

// Protocol returns the dialect with its routes and its conversation.
func Protocol(cfg Config) protocol.Protocol {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 30*time.Second)
	cfg.Backlog = cmp.Or(cfg.Backlog, 1000)
	p := protocol.Protocol{Dialect: metis.Dialect{}, Ticket: attach, Below: []string{Base}}
	bases := []string{Base}
	if cfg.Root {
		bases, p.Below = append(bases, ""), append(p.Below, "/sessions")
	}
	for _, base := range bases {
		a := &api{base: base, cfg: cfg}
		p.Routes = append(p.Routes, a.routes()...)
		p.Conversations = append(p.Conversations, a.conversation())
	}
	return p
}

func (a *api) routes() []protocol.Route {
	route := func(method, path string, needs auth.Scope, serve func(context.Context, *protocol.Call) error) protocol.Route {
		// Commands are not counted, as those of the native protocol are not: an agent can be stopped however much it
		// has sent.
		return protocol.Route{Pattern: method + " " + a.base + "/sessions" + path, Needs: needs,
			Writes: needs&auth.ScopeWrite != 0, Serve: protocol.WithLogTimeout(serve)}
	}
	return []protocol.Route{
		route("POST", "", auth.ScopeWrite, a.create),
		route("GET", "/{run}", auth.ScopeRead, a.get),
		route("DELETE", "/{run}", auth.ScopeWrite|auth.ScopeCommand, a.endSession),
		route("POST", "/{run}/turns", auth.ScopeCommand, a.submit),
		route("POST", "/{run}/turns/{turn}/cancel", auth.ScopeCommand, a.cancel),
		route("POST", "/{run}/turns/{turn}/confirmations/{request}", auth.ScopeCommand, a.confirm),
		route("GET", "/{run}/messages", auth.ScopeRead, a.messages),
		route("GET", "/{run}/events", auth.ScopeRead, a.events),
	}
}
