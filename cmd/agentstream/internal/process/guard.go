package process

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard returns a handler that refuses, with 403, what a browser sends for a page of somebody else: a request whose
// Host is a name that may have been pointed here, and one that a page of another origin makes. It is for listeners that
// ask nobody who they are. at is the listener's address.
//
// At a loopback address the Host is localhost or a loopback address. Elsewhere it is any address, a name without a dot,
// a name that public DNS has not (.internal, .local, .localhost, .svc), or one of names.
func Guard(next http.Handler, at net.Addr, names ...string) http.Handler {
	local := false
	if tcp, ok := at.(*net.TCPAddr); ok {
		local = tcp.IP.IsLoopback()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isServedName(r.Host, local, names):
			http.Error(w, "this listener is not asked by this Host (--admin-host names others)", http.StatusForbidden)
		case foreign(r):
			http.Error(w, "a page of another origin asks nothing here", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// privateNames end names that nobody gets from public DNS.
var privateNames = []string{".internal", ".local", ".localhost", ".svc"}

// isServedName reports whether a Host is one of the listener's. HTTP/1.0, which no browser speaks, may have
// none.
func isServedName(host string, local bool, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "" || host == "localhost" {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !local || ip.Unmap().IsLoopback()
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) }) {
		return true
	}
	private := func(end string) bool { return strings.HasSuffix(host, end) }
	return !local && (!strings.Contains(host, ".") || slices.ContainsFunc(privateNames, private))
}

// foreign reports whether a page of another origin makes the request. Browsers say so, and others say nothing.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" {
		return site != "same-origin" && site != "none"
	}
	origin := r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return origin != "" && !strings.EqualFold(host, r.Host)
}
