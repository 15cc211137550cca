package edge

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentstream/edge/protocol"
)

// Cross-origin requests (Fetch §3.2). Credentials are in headers or tickets and never in cookies, so
// that no page can make a browser send somebody's credential: what another origin may not do is read
// answers, and that is what the list decides. A POST of a foreign page with a simple content type
// arrives without a credential and is refused for that. There is no "*" and no
// Access-Control-Allow-Credentials: a proxy in front that does authenticate by cookies is not opened
// by this server.

// Fixed values of the CORS headers.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
	corsHeaders = "Accept, Agentstream-Atomic, Agentstream-Run-Metadata, Agentstream-Run-Tags, Agentstream-Run-Title, Authorization, " +
		"Cache-Control, Connect-Protocol-Version, Connect-Timeout-Ms, Content-Encoding, Content-Type, " +
		"Detail, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Grpc-Web, X-Request-Id, X-User-Agent"
	corsExpose = "Accept-Encoding, Allow, Content-Disposition, Etag, Grpc-Message, Grpc-Status, Idempotency-Replayed, Last-Event-ID, Last-Seq, Location, " +
		"Retry-After, WWW-Authenticate, Warning, X-Request-Id"
	corsMaxAge = "600" // seconds; a withdrawn origin can go on for as long
)

// corsLists returns the headers that pages may send and read: the server's own and those of its protocols.
func corsLists(protocols []protocol.Protocol) (allow, expose string) {
	send, read := strings.Split(corsHeaders, ", "), strings.Split(corsExpose, ", ")
	for i := range protocols {
		p := &protocols[i]
		send, read = append(send, p.Allow...), append(read, p.Expose...)
		if p.Key != "" {
			send = append(send, p.Key)
		}
	}
	slices.Sort(send)
	slices.Sort(read)
	return strings.Join(slices.Compact(send), ", "), strings.Join(slices.Compact(read), ", ")
}

// cors sets the headers of who may read the answer, whatever it will be: errors and 204 as well. It sets Vary also for
// requests without an origin, or a cache gives their answer to a page.
func (s *Server) cors(c *call) {
	if len(s.cfg.Origins) == 0 {
		return
	}
	h := c.Writer.Header()
	h.Add("Vary", "Origin")
	if origin := c.Request.Header.Values("Origin"); len(origin) == 1 && slices.Contains(s.cfg.Origins, origin[0]) {
		h.Set("Access-Control-Allow-Origin", origin[0])
		h.Set("Access-Control-Expose-Headers", s.expose)
	}
}

// preflight answers a browser's question whether it may send a request, for paths that do not exist
// too: else a page could not read the 404. It does not ask for a credential, because there is none,
// and contains nothing but the list. It is false for other requests.
func (s *Server) preflight(c *call) bool {
	if len(s.cfg.Origins) == 0 || c.Request.Method != http.MethodOptions ||
		c.Request.Header.Get("Origin") == "" || c.Request.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := c.Writer.Header()
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Del("Access-Control-Expose-Headers")
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", s.allow)
		h.Set("Access-Control-Max-Age", corsMaxAge)
	}
	c.Writer.WriteHeader(http.StatusNoContent)
	return true
}

// originAllowed reports whether a WebSocket may be opened by this request (RFC 6455 §10.2): browsers do
// not ask before they open one, and do not keep a page from reading it. Allowed are clients that are
// no browser, which send no origin, pages of this very host, and the list.
func (s *Server) originAllowed(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	if len(values) > 1 {
		return false
	}
	if slices.Contains(s.cfg.Origins, values[0]) {
		return true
	}
	u, err := parseOrigin(values[0])
	return err == nil && sameHost(u, r.Host)
}

// sameHost compares host and port. The scheme is not compared: a proxy in front takes TLS off.
func sameHost(origin *url.URL, host string) bool {
	standard := map[string]string{"http": "80", "https": "443"}[origin.Scheme]
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), standard
	}
	return strings.EqualFold(name, origin.Hostname()) && port == cmp.Or(origin.Port(), standard)
}

// parseOrigin accepts an origin as browsers send it: a scheme, a host, perhaps a port, all in lower
// case, and nothing behind.
func parseOrigin(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("origin %q: not a URL", text)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || text != u.Scheme+"://"+u.Host ||
		text != strings.ToLower(text) {
		return nil, fmt.Errorf("origin %q: not scheme://host or scheme://host:port in lower case", text)
	}
	return u, nil
}

// validOrigins checks a list of exact origins.
func validOrigins(list []string) error {
	for _, o := range list {
		u, err := parseOrigin(o)
		if err != nil {
			return err
		}
		if strings.Contains(u.Host, "*") {
			return fmt.Errorf("origin %q: patterns are not supported", o)
		}
		if u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443" {
			return fmt.Errorf("origin %q: browsers leave the standard port out", o)
		}
	}
	return nil
}
