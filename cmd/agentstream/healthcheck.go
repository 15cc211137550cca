package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
)

// HealthcheckCmd asks an edge or a persister on this machine how it is. It is for containers, which have no other
// program to ask with.
type HealthcheckCmd struct {
	AdminListen  string        `help:"The --admin-listen of the process; of an address for all interfaces, the loopback one is asked." default:"127.0.0.1:8081" env:"AGENTSTREAM_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	HealthListen string        `help:"The --health-listen of the process, which is asked instead if there is one." env:"AGENTSTREAM_HEALTH_LISTEN" placeholder:"HOST:PORT"`
	AdminTLSCert string        `name:"admin-tls-cert" help:"The --admin-tls-cert of the process: it is asked over TLS, and must have this certificate." env:"AGENTSTREAM_ADMIN_TLS_CERT" type:"path" placeholder:"FILE"`
	Live         bool          `help:"Ask whether the process serves (/healthz), and not whether it is ready (/readyz)."`
	Timeout      time.Duration `help:"How long the answer may take." default:"5s"`
	JSON         bool          `name:"json" help:"Print the answer of the process as one JSON object, also when it is not ready."`
	cli.Streams  `kong:"-"`
}

// errNotHealthy: the process has answered, and something else than 200.
var errNotHealthy = errors.New("not healthy")

// Run asks once. Its error holds the answer of the process.
func (c *HealthcheckCmd) Run(ctx context.Context) error {
	at, flag := c.AdminListen, "--admin-listen"
	if c.HealthListen != "" {
		at, flag, c.AdminTLSCert = c.HealthListen, "--health-listen", ""
	}
	if at == "off" {
		return errors.New("healthcheck: --admin-listen is off: there is nobody to ask")
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", flag, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme, own, err := c.trust()
	if err != nil {
		return fmt.Errorf("healthcheck: --admin-tls-cert: %w", err)
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	// without a proxy
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: own}}).Do(req)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", path, err)
	}
	if c.JSON {
		var answer any = json.RawMessage(said)
		if !json.Valid(said) {
			answer = map[string]int{"status": resp.StatusCode}
		}
		if err := c.Print(true, answer, ""); err != nil {
			return err
		}
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s: %w: %d %s", path, errNotHealthy, resp.StatusCode, strings.TrimSpace(string(said)))
	}
	if c.JSON {
		return nil
	}
	return c.Print(false, nil, "ok")
}

// trust returns how the process is asked. Its certificate is that of the file, whatever names are in it.
func (c *HealthcheckCmd) trust() (scheme string, own *tls.Config, err error) {
	if c.AdminTLSCert == "" {
		return "http://", nil, nil
	}
	text, err := os.ReadFile(c.AdminTLSCert)
	if err != nil {
		return "", nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", nil, fmt.Errorf("%s: holds no certificate in PEM", c.AdminTLSCert)
	}
	check := func(shown [][]byte, _ [][]*x509.Certificate) error {
		if len(shown) == 0 || !bytes.Equal(shown[0], block.Bytes) {
			return fmt.Errorf("another certificate than that of %s", c.AdminTLSCert)
		}
		return nil
	}
	return "https://", &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true,
		VerifyPeerCertificate: check}, nil
}
