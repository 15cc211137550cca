package auth

import (
	"fmt"
	"net"
	"net/http"
)

// Open lets everybody in who is on this machine: for trying things out, on a loopback address. Pages
// of other sites run on this machine, too, in a browser. So a Host that is not a loopback name is
// refused (a name of theirs that was pointed here), and so is a request to change something that a
// page of another origin sends. Make it with NewOpen.
type Open struct {
	caller Caller
	cross  *http.CrossOriginProtection
}

// NewOpen returns everybody the caller. Pages of origins may send requests.
func NewOpen(c Caller, origins []string) (*Open, error) {
	o := &Open{caller: c, cross: http.NewCrossOriginProtection()}
	o.caller.Credential = "open"
	for _, origin := range origins {
		if err := o.cross.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("auth: open: %w", err)
		}
	}
	return o, nil
}

// notOpen is why an open server refuses a request. There is no credential to blame, so its client learns it.
type notOpen string

func (e notOpen) Error() string { return string(e) }

// Unwrap makes it an ErrForbidden.
func (notOpen) Unwrap() error { return ErrForbidden }

// Words are for the client.
func (e notOpen) Words() string { return string(e) }

// Authenticate returns the caller, or an error that wraps ErrForbidden.
func (o *Open) Authenticate(r *http.Request) (Caller, error) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return Caller{}, notOpen("the Host of the request is not allowed: without authentication this server answers localhost and " +
			"loopback addresses alone; to serve others give it authentication (--auth-token, --api-keys, --oidc-issuer)")
	}
	if err := o.cross.Check(r); err != nil {
		return Caller{}, notOpen("a page of another origin changes nothing on a server without authentication; its origin can be allowed (--cors-origin)")
	}
	return o.caller, nil
}

// Still accepts its own caller.
func (o *Open) Still(c Caller) error {
	if c.Credential != o.caller.Credential || c.Tenant != o.caller.Tenant {
		return refuse("not a caller of an open server")
	}
	return nil
}
