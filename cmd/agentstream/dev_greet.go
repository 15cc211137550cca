package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"agentstream/cmd/agentstream/internal/cli"
)

// makeToken makes a token when others than this machine would be served, and nobody has said who may come in.
func (c *DevCmd) makeToken() {
	c.made = c.IsExposed()
	if c.made {
		c.AuthToken = rand.Text()
	}
}

// keepToken keeps the token that was made beside the data, or returns to the one of an earlier start.
func (c *DevCmd) keepToken() error {
	if !c.made {
		return nil
	}
	path := filepath.Join(c.Data, "token")
	kept, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return os.WriteFile(path, []byte(c.AuthToken+"\n"), 0o600)
	}
	if err != nil {
		return err
	}
	if c.AuthToken = strings.TrimSpace(string(kept)); c.AuthToken == "" {
		return fmt.Errorf("%s: is empty; remove it, and another one is made", path)
	}
	return nil
}

// addressHere returns the address of a listener as it is reached from this machine, over TLS or not.
func addressHere(addr net.Addr, secured bool) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if secured {
		return "https://" + net.JoinHostPort(host, port)
	}
	return "http://" + net.JoinHostPort(host, port)
}

// addressFile is in --data and holds where the one who has the folder is reached.
const addressFile = "address"

// keepAddress writes where this process is reached, for other commands that are given the same folder.
func (c *DevCmd) keepAddress(addr net.Addr) error {
	path := filepath.Join(c.Data, addressFile)
	_ = os.Remove(path) // that of an earlier start, with its mode
	return os.WriteFile(path, []byte(addressHere(addr, c.TLS.IsSet())+"\n"), 0o600)
}

// greet prints what a person needs: where the console is, how curl watches a run, and the token if one was made. It is
// not for the log, which has no credentials.
func (c *DevCmd) greet(addr net.Addr, run string) error {
	base := cmp.Or(strings.TrimSuffix(c.PublicURL, "/"), addressHere(addr, c.TLS.IsSet()))
	var text strings.Builder
	page, path, credential := "#/runs", "/v1/agent/runs", ""
	if run != "" {
		run = url.PathEscape(run)
		page, path = "#/run/"+run, "/v1/agent/runs/"+run+"/stream"
	}
	switch {
	case c.made:
		credential = fmt.Sprintf("-H 'Authorization: Bearer %s' ", c.AuthToken)
	case !c.Open(): // who started it has one
		credential = cli.CurlCredential
	}
	ca := filepath.Join(c.Data, tlsFolder, caFile)
	if c.LocalTLS {
		credential = "--cacert " + ca + " " + credential
	}
	if c.Console {
		fmt.Fprintf(&text, "\n  console  %s/console/%s", base, page)
	}
	fmt.Fprintf(&text, "\n  curl     curl -N %s%s%s\n", credential, base, path)
	if c.made {
		fmt.Fprintf(&text, "  token    %s   the console asks for it once; it is kept in %s\n", c.AuthToken,
			filepath.Join(c.Data, "token"))
	} else if !c.Open() {
		text.WriteString("  token    one that this server accepts; curl and the commands read it from AGENTSTREAM_TOKEN\n")
	}
	if c.LocalTLS {
		fmt.Fprintf(&text, trustText, ca)
	}
	return c.Print(false, nil, "%s", text.String())
}

// trustText is how a certificate authority of this machine is trusted.
const trustText = `
  tls      the certificate is of an authority that only this machine has. To trust it:
           agentstream  --ca %[1]s (or AGENTSTREAM_CA)
           Node         NODE_EXTRA_CA_CERTS=%[1]s
           Debian       cp %[1]s /usr/local/share/ca-certificates/agentstream-dev.crt && update-ca-certificates
           macOS        security add-trusted-cert -r trustRoot -k ~/Library/Keychains/login.keychain-db %[1]s
           Firefox      Settings, Certificates, Authorities, Import
`
