package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
)

// HealthcheckCmd asks an edge or a persister on this machine how it is. It is for containers, which have no other
// program to ask with.
type HealthcheckCmd struct {
	AdminListen string        `help:"The --admin-listen of the process; of an address for all interfaces, the loopback one is asked." default:"127.0.0.1:8081" env:"AGENTSTREAM_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	Live        bool          `help:"Ask whether the process serves (/healthz), and not whether it is ready (/readyz)."`
	Timeout     time.Duration `help:"How long the answer may take." default:"5s"`
	JSON        bool          `name:"json" help:"Print the answer of the process as one JSON object, also when it is not ready."`
	cli.Streams `kong:"-"`
}

// errNotHealthy: the process has answered, and something else than 200.
var errNotHealthy = errors.New("not healthy")

// Run asks once. Its error holds the answer of the process.
func (c *HealthcheckCmd) Run(ctx context.Context) error {
	if c.AdminListen == "off" {
		return errors.New("healthcheck: --admin-listen is off: there is nobody to ask")
	}
	host, port, err := net.SplitHostPort(c.AdminListen)
	if err != nil {
		return fmt.Errorf("healthcheck: --admin-listen: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) // without a proxy
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
