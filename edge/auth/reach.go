package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// reach is where an issuer's document, and redirects, may lead: not to this machine nor to its link, unless the
// configured address is there itself. Otherwise whoever writes the document would have this process ask what listens
// here.
type reach struct {
	host  string // of the configured address
	local bool   // it is this machine's
}

func newReach(configured string) reach {
	u, err := url.Parse(configured)
	if err != nil {
		return reach{}
	}
	host := u.Hostname()
	return reach{host: host, local: isLocal(host)}
}

// check refuses an address that is not safe, or that is not to be reached.
func (r reach) check(text string) error {
	if err := safeURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if host := u.Hostname(); !r.isIssuer(host) && isLocal(host) {
		return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, errLocal)
	}
	return nil
}

// isIssuer reports whether the issuer is where host is.
func (r reach) isIssuer(host string) bool { return r.local || strings.EqualFold(host, r.host) }

var errLocal = errors.New("an issuer elsewhere does not lead to this machine")

// isLocal reports whether a host is this machine or on its link, by its name or its address.
func isLocal(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && isLocalIP(ip)
}

func isLocalIP(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast()
}

// transport returns one whose connections are held to the same by the address that is dialled, whatever a name
// stands for. Proxies of the environment are the operator's.
func (r reach) transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: 30 * time.Second}
		if host, _, err := net.SplitHostPort(addr); err == nil && ctx.Value(direct{}) != nil && !r.isIssuer(host) {
			d.Control = refuseLocal
		}
		return d.DialContext(ctx, network, addr)
	}
	return direct{t}
}

// direct marks the requests that no proxy carries, for who dials.
type direct struct{ t *http.Transport }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if proxy, err := d.t.Proxy(r); err == nil && proxy == nil {
		r = r.WithContext(context.WithValue(r.Context(), direct{}, true))
	}
	return d.t.RoundTrip(r)
}

// CloseIdleConnections closes those that nobody uses.
func (d direct) CloseIdleConnections() { d.t.CloseIdleConnections() }

func refuseLocal(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if isLocalIP(at.Addr()) {
		return fmt.Errorf("%s: %w", address, errLocal)
	}
	return nil
}
