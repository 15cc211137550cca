package sink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// errPrivate reports an address that must not be asked: one who may name a webhook could reach by it what only this
// machine reaches.
var errPrivate = errors.New("an address of this machine or of a private network (--allow-private)")

// reserved are networks that are not public and that netip has no word for.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("::/96"),
}

// isPublic reports whether an address is one of the internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// newClient returns a client that follows no redirect and asks no proxy. The address is looked at when it is connected
// to, after its name was resolved: a name that resolves to something else the second time gains nothing.
func newClient(o Options) *http.Client {
	dialer := &net.Dialer{Timeout: o.Timeout}
	if !o.Private {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if !isPublic(to.Addr()) {
				return fmt.Errorf("%s: %w", to.Addr(), errPrivate)
			}
			return nil
		}
	}
	return &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: o.Timeout, MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// do sends a request. Its error does not repeat the address, which may hold a token.
func do(client *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := client.Do(req)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return resp, err
}

// readAnswer reads the beginning of an answer, and closes it.
func readAnswer(resp *http.Response) ([]byte, error) {
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	return answer, errors.Join(err, resp.Body.Close())
}
