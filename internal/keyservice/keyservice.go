package keyservice

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"agentstream/schema"
)

// Info is what is known of a tenant's key.
type Info struct {
	Tenant  string
	Version int       // the newest; 0: it was deleted
	Made    time.Time // the newest version, or when the key was deleted; zero: not known
}

// ErrExists reports that a tenant has a key already.
var ErrExists = errors.New("the tenant has a key already")

// errGone is that of a tenant without a key.
func errGone(tenant string) error { return fmt.Errorf("tenant %s: %w", tenant, schema.ErrKeyGone) }

// errAway is that of a key service that does not answer, or not as it should.
func errAway(err error) error { return fmt.Errorf("key service: %w: %w", schema.ErrUnavailable, err) }

// Address is where a key service is, as people write it.
//
//	file:FOLDER
//	vault+https://HOST:8200[/MOUNT]
type Address struct {
	Folder string   // of a File; "" for others
	Vault  *url.URL // of a Vault; nil for others
}

// ParseAddress reads an address. Its errors name no part of it that may be a password.
func ParseAddress(text string) (a Address, err error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "file":
		a.Folder = rest
		if rest == "" {
			return a, errors.New("file: names no folder")
		}
		return a, nil
	case "vault+https", "vault+http":
		u, err := url.Parse(strings.TrimPrefix(text, "vault+"))
		switch {
		case err != nil || u.Host == "":
			return a, errors.New("vault+https: is no address of a server")
		case u.User != nil || u.RawQuery != "":
			return a, errors.New("vault+https: a token does not belong into the address: it is for --key-service-token")
		}
		a.Vault = u
		return a, nil
	}
	return a, fmt.Errorf("a key service is file:FOLDER or vault+https://HOST/MOUNT, not %.20q", scheme)
}
