package edge

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/transport/grpc"
	"agentstream/edge/transport/ws"
)

// route is one path of the server. Patterns are like those of http.ServeMux, but the path is matched
// as it was sent: ServeMux answers "..", "//" and their kin with a redirect to another path, and here
// they are ids to be refused.
type route struct {
	pattern  string // "POST /v1/agent/runs/{run}/events"; name of the route in logs and metrics
	method   string
	segments []string
	named    bool // the path names a run
	serve    func(*call) error
	needs    auth.Scope         // of the caller; 0: open to everybody
	stream   *live.Bound        // nil for routes of the server itself
	own      *protocol.Stream   // what the protocol says of the stream; nil for conversations, and where there is none
	asked    *route             // the stream that a request for this path may ask for; nil: there is none
	protocol *protocol.Protocol // in whose words it refuses; nil: the server's own
	anywhere bool               // is about no run, and answers also who may see one alone
	late     bool               // who may not call is refused behind the upgrade, or when the message was read
	rpcs     *grpc.Transport    // serves a gRPC method, within the size of its messages
}

// newRoute takes a pattern apart: a method, a space, a path whose segments are literal or {named}.
func newRoute(pattern string, serve func(*call) error) (*route, bool) {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok || method == "" || !strings.HasPrefix(path, "/") {
		return nil, false
	}
	rt := &route{pattern: pattern, method: method, segments: split(nil, path), serve: serve}
	rt.named = slices.Contains(rt.segments, "{run}")
	return rt, true
}

// split appends the segments of an escaped path to dst, empty ones too.
func split(dst []string, path string) []string {
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		dst = append(dst, segment)
	}
	return dst
}

// transport is what carries the route's stream; "" for routes of the server itself.
func (rt *route) transport() dialect.Transport {
	if rt == nil || rt.stream == nil {
		return ""
	}
	return rt.stream.Transport
}

// isTicketable reports whether the route is one that a ticket may open. What is done there is checked against
// the caller's run where the path does not name it.
func (rt *route) isTicketable() bool {
	return rt.stream != nil && rt.method == http.MethodGet && !rt.stream.Publishes && !rt.stream.Taps
}

// mustCheckRun reports whether what is done there is checked against the caller's run where the path does not
// name it.
func (rt *route) mustCheckRun() bool {
	return rt.isTicketable() || rt.transport() == dialect.SSE
}

// match compares escaped segments and unescapes the named ones: %2F inside an id is part of the id. A name that
// stands for nothing is no path: to who reads it, it would not have been given. Only an empty {run} is left to whoever
// checks ids.
func (rt *route) match(segments []string) (protocol.Params, bool) {
	if len(segments) != len(rt.segments) {
		return nil, false
	}
	for i, want := range rt.segments {
		if segments[i] != want && !strings.HasPrefix(want, "{") {
			return nil, false
		}
	}
	var path protocol.Params
	for i, want := range rt.segments {
		name, named := strings.CutPrefix(want, "{")
		if !named {
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil { // net/http has refused such a target already
			return nil, false
		}
		if name = strings.TrimSuffix(name, "}"); value == "" && name != "run" {
			return nil, false
		}
		path = append(path, protocol.Param{Name: name, Value: value})
	}
	return path, true
}

// find returns the route of a request. HEAD is served by GET. When the path exists but not with this
// method it returns the methods that do, and errMethod; else errNoRoute.
func find(routes []*route, r *http.Request) (*route, protocol.Params, []string, error) {
	var room [16]string
	segments := split(room[:0], r.URL.EscapedPath())
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allow []string
	var plain *route
	var plainPath protocol.Params
	upgrade := r.ProtoMajor == 1 && ws.IsUpgrade(r)
	for _, rt := range routes {
		path, ok := rt.match(segments)
		if !ok {
			continue
		}
		socket := rt.transport() == dialect.WebSocket
		switch {
		case rt.method == method && socket == upgrade:
			return rt, path, nil, nil
		case rt.method == method && !socket:
			plain, plainPath = rt, path // an upgrade that the path does not know is passed over (RFC 9110 §7.8)
		case socket:
			continue // its plain route says which methods there are
		}
		allow = append(allow, rt.method)
		if rt.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if plain != nil {
		return plain, plainPath, nil, nil
	}
	if len(allow) == 0 {
		return nil, nil, nil, ends.ErrNoRoute
	}
	slices.Sort(allow)
	return nil, nil, slices.Compact(allow), ends.ErrMethod
}
